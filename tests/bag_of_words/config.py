"""A small bag-of-words classifier, trained in seconds."""

from ml_collections import ConfigDict
from tasks.bag_of_words import BagOfWords, Classifier

from configs import _optimizer, _variants

VARIANTS = {"": {}, "smoke": {"train_steps": 20}}


def get_config(variant=""):
    config = ConfigDict({"task": BagOfWords, "architecture": Classifier, "seed": 0})
    config.optimizer = _optimizer.adam(0.1)
    config.data = ConfigDict({"words": 11, "batch_size": 32})
    config.evaluation = ConfigDict({"checkpoint": "last", "average": 1})
    config.update({"train_steps": 40, "eval_every": 20, "save_every": 5})
    config.update({"log_every": 10, "parallel": "jit", "model": {"scale": 1.0}})
    config.update({"checkpoints": {"keep": 2}, "non_finite": "stop"})
    config.update({"mesh": {"data": -1, "fsdp": 1, "tensor": 1}})
    return _variants.apply(config, VARIANTS, variant)
