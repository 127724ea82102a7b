"""Training, and what a run leaves behind."""

from ecoc.training.launch import train
from ecoc.training.run import load_model
from ecoc.training.trainer import Stopped, Trainer

__all__ = ["Stopped", "Trainer", "load_model", "train"]
