"""What the commands for captioners and pictures do."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ecoc.commands.printing import print_scores
from ecoc.options import CaptionEvalOptions, DescribeOptions, FeaturesOptions

if TYPE_CHECKING:
    from ecoc.data.captions import Skipped


def caption_eval_command(options: CaptionEvalOptions) -> int:
    """Scores of a captioner on a split."""
    from ecoc.captioning import TrainedCaptioner

    scores, skipped = TrainedCaptioner(options.run).evaluate(
        options.split,
        beam=options.beam,
        length_power=options.length_power,
        batch=options.batch,
        captions=options.captions,
        features=options.features,
        out=options.out,
        progress=True,
    )
    if options.json:
        print(json.dumps(scores))
    else:
        print_scores(scores)
    return _left_out(skipped)


def describe_command(options: DescribeOptions) -> int:
    """Sentences about pictures."""
    from ecoc.captioning import TrainedCaptioner
    from ecoc.gallery import Entry, check_page, write_gallery

    if options.html is not None:
        check_page(options.html)  # before the work, not after
    described, skipped = TrainedCaptioner(options.run).describe(
        options.images,
        beam=options.beam,
        sentences=options.sentences or 3,  # never None: see the options
        length_power=options.length_power,
        progress=True,
    )
    for one in described:
        if options.json:
            sentences = [{"sentence": sentence.text, "score": sentence.score} for sentence in one.sentences]
            print(json.dumps({"image": one.name, "sentences": sentences}))
            continue
        print(one.name)
        for sentence in one.sentences:
            print(f"  {sentence.score:7.2f}  {sentence.text}")
    if options.html is not None:
        entries = [
            Entry(
                one.name, one.picture, [(sentence.text, sentence.score) for sentence in one.sentences], one.references
            )
            for one in described
        ]
        power = options.length_power
        divided = f", divided by its length to the power {power:g}" if power else ""
        write_gallery(
            options.html,
            f"Described by {options.run}",
            entries,
            f"A sentence's score is its log probability{divided}.",
            [(str(one.id), one.reason) for one in skipped],
        )
        print(f"{options.html}: a page of {len(entries)} pictures", file=sys.stderr)
    return _left_out(skipped)


def features_command(options: FeaturesOptions) -> int:
    """Features of pictures."""
    from ecoc.data.extract import extract_features

    skipped = extract_features(
        options.images,
        options.out,
        grid=options.grid,
        projection=options.projection,
        batch=options.batch,
        overwrite=options.overwrite,
        progress=True,
    )
    same = f" --projection {options.projection}" if options.projection else ""
    print(f"{options.out}: done. Next: ecoc caption train --captions FILE.json --features {options.out}{same}")
    return _left_out(skipped)


def _left_out(skipped: "Sequence[Skipped]") -> int:
    """Say which images were left out; the exit code, 1 if there were any."""
    for one in skipped[:_TOLD]:
        print(f"ecoc: left out {one.id}: {one.reason}", file=sys.stderr)
    if len(skipped) > _TOLD:
        print(f"ecoc: left out {len(skipped) - _TOLD} more, {len(skipped)} in all", file=sys.stderr)
    return 1 if skipped else 0


_TOLD = 20  # images left out that are named
