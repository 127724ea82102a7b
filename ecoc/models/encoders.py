"""What turns an image into a vector (or a grid of them) of the decoder's size."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FeatureEncoder(nn.Module):
    """Features of a network that was trained elsewhere, ``(batch, d)`` or ``(batch, cells, d)``, to the decoder's size.

    Whatever their scale, they are brought to mean 0 and variance 1 first.

    Args:
        feature_size: Numbers d of a feature.
        size: Numbers of an input of the decoder.
        dropout: Share of the features dropped.
    """

    def __init__(self, feature_size: int, size: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout, self.linear = nn.Dropout(dropout), UnitLinear(feature_size, size)

    def forward(self, features: Tensor) -> Tensor:
        encoded: Tensor = self.linear(self.dropout(F.layer_norm(features, features.shape[-1:])))
        return encoded


class SmallCNN(nn.Module):
    """A network for small pictures ``(batch, height, width, 3)`` from 0 to 1, trained together with the decoder.

    Args:
        size: Numbers of an input of the decoder.
        pictures: Height and width of a picture.
        grid: Give the cells of the last layer, for attention, instead of one vector.
    """

    def __init__(self, size: int, pictures: tuple[int, int] = (64, 64), grid: bool = False) -> None:
        super().__init__()
        self.grid = grid
        widths = (3, 24, 48, 96, 128)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        cells = math.prod(-(-side // 16) for side in pictures)
        self.linear = UnitLinear(widths[-1] + 2 if grid else widths[-1] * cells, size)

    def forward(self, pictures: Tensor) -> Tensor:
        found = self.layers(pictures.permute(0, 3, 1, 2) * 2 - 1)  # [batch, 128, height / 16, width / 16]
        if not self.grid:
            whole: Tensor = self.linear(found.flatten(1))
            return whole
        rows, columns = (torch.linspace(-1, 1, n, device=found.device) for n in found.shape[2:])
        where = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(len(found), -1, -1, -1)
        cells: Tensor = self.linear(torch.cat([found, where.to(found.dtype)], 1).flatten(2).transpose(1, 2))
        return cells


class UnitLinear(nn.Linear):
    r"""A linear map with weights of variance 1, :math:`W x / \sqrt d + b`, as in a code embedding.

    A step of Adam moves all weights alike, and so the sum over hundreds of inputs far. Divided by the root of their
    number, it moves as an embedding does.
    """

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs / math.sqrt(self.in_features), self.weight, self.bias)
