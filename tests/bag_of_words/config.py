"""A small bag-of-words classifier, trained in seconds."""

from tasks.bag_of_words import BagOfWords, Classifier

from configs import _variants
from training.configuration import defaults
from training.optimizers import adam

VARIANTS = {"": {}, "smoke": {"train_steps": 20}}


def get_config(variant=""):
    config = defaults(BagOfWords, Classifier)
    config.optimizer = adam(0.1)
    config.update({"train_steps": 40, "eval_every": 20, "save_every": 5})
    config.update({"log_every": 10, "checkpoints": {"keep": 2}})
    return _variants.apply(config, VARIANTS, variant)
