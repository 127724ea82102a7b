"""Results as they could be, and ways to look at what is made of them."""

import json
import random
from dataclasses import asdict, replace

from ecoc.experiments.charts import charts
from ecoc.experiments.groups import groups
from ecoc.experiments.report import write_report
from ecoc.experiments.results import Result
from ecoc.experiments.tables import table
from tests.page import Page

HOSTILE = """<script>alert("1")</script> & <b a='"'> | `x` [y](z)"""
PEERS = ("Rand-Sample-SM", "Uni-Sample-SM", "Rand-Hierarchical-SM", "Uni-Hierarchical-SM", "Adaptive-SM", "NCE")
COCO = ("Full-SM", "SS-SM", "Soft-SS-SM", "SS-Hierarchical-SM", "SS-ECOC", "CLVMS-ECOC", "DLVMS-ECOC", "Mine-ECOC")


def language(row, perplexity, *, seconds=1000.0, epochs=4, decoder=1000, **others):
    """A language model whose validation perplexity falls to 1.05 times that of the test."""
    head = "ecoc" if "ECOC" in row else "softmax"
    values = {"study": "table1", "corpus": "ptb", "budget": "small", "seed": 1, "options": {"head": head, "lr": 0.004}}
    curve = [
        {
            "epoch": e,
            "valid_perplexity": {"normalised": 1.05 * perplexity * (epochs / e)},
            "cpu_seconds": seconds * e / epochs,
        }
        for e in range(1, epochs + 1)
    ]
    sizes = {"decoder_parameters": decoder, "parameters": decoder + 6_000_000, "bytes": 4 * decoder + 24_000_000}
    values |= {"command": "ecoc train --corpus ptb", "commit": "0123456789ab", "versions": {"python": "3.11.2"}}
    values |= {"sizes": sizes, "curve": curve, "tuning": {"0.002": 2 * perplexity, "0.004": 1.9 * perplexity}}
    values |= {"cost": {"cpu_seconds": seconds, "peak_memory_bytes": 5e8, "epochs": epochs, "threads": 1}}
    values |= {
        "valid": {"perplexity": {"normalised": 1.05 * perplexity}},
        "test": {"perplexity": {"normalised": perplexity}},
    }
    return Result(row=row, **values | others)


def spans(row, test, **others):
    modes = {"normalised": test, "span-mass": test, "paper": 1.5 * test}
    return language(row, test, test={"perplexity": modes}, note="spans of codewords", **others)


def skipped(row, reason="54,321 CPU seconds an epoch", **others):
    cost = {"cpu_seconds_per_epoch": 54321.4}
    return language(row, 1.0, skipped=reason, cost=cost, sizes={}, test={}, valid={}, curve=[], **others)


def captions(row, bleu, said="a man on a horse", **others):
    scores = {f"bleu{n}": bleu / n for n in range(1, 5)} | {"rouge_l": 0.48, "meteor": 0.2, "cider": 3 * bleu - 1}
    scores |= {"perplexity": {"normalised": 12.0}}
    paper = {f"bleu{n}": 72 / n for n in range(1, 5)} | {"rouge_l": 50.28, "meteor": 52.7}
    shown = [{"image": 7 + i, "caption": f"{said} {i}", "references": [f"people {i}"]} for i in range(10)]
    values = {"study": "table2", "corpus": "coco", "test": scores, "paper": paper, "extra": {"captions": shown}}
    return language(row, 12.0, **values | others)


def coded(study, codebook, bits, test, **options):
    options = {"head": "ecoc", "codebook": codebook, "bits": bits} | options
    name = "-".join(str(value) for value in options.values())
    return language(name, test, study=study, decoder=401 * bits, options=options | {"lr": 0.004})


def flips(row, accuracy, recovered=(1, 0.9, 0.5, 0.1), distance=3, **options):
    extra = {
        "flips": [0.0, 0.01, 0.05, 0.2],
        "accuracy": accuracy,
        "recovered": [*recovered],
        "minimum_distance": distance,
    }
    return Result("flips", row, "ptb", 1, "small", options=options, extra=extra)


def plausible():
    """About 120 results of all studies."""
    draw = random.Random(1)
    found = []
    for corpus, base, words in (("ptb", 100, 10_000), ("wikitext-2", 140, 33_278), ("wikitext-103", 60, 267_735)):
        here = {"corpus": corpus, "paper": {"valid": 0.8 * base, "test": 0.75 * base}}
        full = here | {"seconds": 0.3 * words, "decoder": 401 * words}
        found += [language("Full-SM", base + draw.random(), seed=seed, **full) for seed in (1, 2, 3)]
        for row in PEERS[: 5 if corpus == "wikitext-103" else 6]:
            cost = {"seconds": full["seconds"] * draw.uniform(0.3, 0.9), "decoder": draw.randint(40, 401) * words}
            found.append(language(row, base * draw.uniform(1, 1.3), **here, **cost))
        for row in ("Random-ECOC", "Uni-ECOC", "Embedding-ECOC"):
            found.append(spans(row, base * draw.uniform(2, 5), seconds=0.06 * words, decoder=16_040, **here))
        for bits in range(128, 1152, 128):
            cost = {"seconds": full["seconds"] * draw.uniform(0.4, 0.6), "decoder": 401 * bits}
            found.append(language(f"Mine-ECOC-{bits}", base * draw.uniform(0.85, 1.1), corpus=corpus, **cost))
    found.append(skipped("NCE", corpus="wikitext-103"))
    found += [captions(row, draw.uniform(0.5, 0.7)) for row in COCO]
    for codebook, worst in (("random", 900), ("span-unigram", 700), ("semantic", 500)):
        found += [coded("figure2", codebook, bits, 90 + worst / bits**0.7) for bits in (14, 20, 40, 100, 300, 1000)]
    for codebook in ("random", "bch", "semantic", "hadamard"):
        for bits in (128, 512):
            tests = {objective: 90 + draw.random() * 9000 / bits for objective in ("likelihood", "bits")}
            found += [coded("ablation", codebook, bits, test, objective=one) for one, test in tests.items()]
    found += [coded("ablation", "span-unigram", 40, 300 / n, objective="span-mass", mixture=n) for n in (1, 2, 4)]
    extra = flips("", [0.24, 0.23, 0.2, 0.1]).extra
    return [replace(one, extra=extra) if one.study == "ablation" else one for one in found]


def saved(tmp_path, *results):
    for number, result in enumerate(results):
        path = tmp_path / "results" / result.study / result.corpus / f"{number:03}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(result)))
    return tmp_path / "results"


def page_of(tmp_path, *results):
    write_report(saved(tmp_path, *results), tmp_path / "page.html", tmp_path / "markdown")
    return Page((tmp_path / "page.html").read_text("utf-8"))


def table_of(*results):
    """The table of results of one group."""
    (group,) = groups(results, results[0].study)
    return table(group, group.row("Full-SM"))


def column(found, name):
    return [row[found.columns.index(name)] for row in found.rows]


def bold(found):
    return {(found.rows[i][0], found.columns[j]) for i, j in found.best}


def charts_of(*results, full=None):
    (group,) = groups(results, results[0].study)
    return charts(group, groups([full], "table1")[0].rows[0] if full else group.row("Full-SM"))
