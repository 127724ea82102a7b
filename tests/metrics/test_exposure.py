"""Free running against a plain loop."""

import torch

from ecoc.data import Batches
from ecoc.heads import Softmax
from ecoc.metrics import free_running
from ecoc.models import LanguageModel, TokenEmbedding, VariationalLSTM

V, H = 11, 6


def small_model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(TokenEmbedding(V, H), VariationalLSTM(H, H, 2, 0.5, 0.5), Softmax(H, V)).double()


def test_losses_are_those_of_a_loop_over_places() -> None:
    model, k = small_model(), 3
    ids = torch.randint(V, (26,), generator=torch.Generator().manual_seed(1))
    result = free_running(model, Batches(ids, 1, k + 1), sampled=False)
    assert model.training
    model.eval()
    own, text = [[] for _ in range(k + 1)], [[] for _ in range(k + 1)]
    with torch.no_grad():
        for start in range(0, 24, k + 1):
            read = ids[: start + 1].tolist()
            for step in range(k + 1):
                hidden, _ = model.hidden(torch.tensor([read]))
                log_probs = model.head.log_prob(hidden[0, -1])
                own[step].append(-float(log_probs[ids[start + step + 1]]))
                read.append(int(log_probs.argmax()))
                hidden, _ = model.hidden(ids[: start + step + 1].unsqueeze(0))
                text[step].append(-float(model.head.log_prob(hidden[0, -1])[ids[start + step + 1]]))
    assert result["scored"] == len(own[0]) == 6
    for name, wanted in (("loss", own), ("loss_fed_with_text", text)):
        torch.testing.assert_close(torch.tensor(result[name]).double(), torch.tensor(wanted).double().mean(1))
    assert result["growth"][0] == 0 and result["fed"] == "best"


def test_sampled_outputs_follow_the_generator() -> None:
    ids = torch.randint(V, (200,), generator=torch.Generator().manual_seed(1))
    model = small_model()
    first, second, other = (
        free_running(model, Batches(ids, 5, 4), True, torch.Generator().manual_seed(seed))["loss"] for seed in (1, 1, 2)
    )
    assert first == second != other and first[0] == other[0]
