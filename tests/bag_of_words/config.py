"""A small bag-of-words classifier, trained in seconds."""

from tasks.bag_of_words import BagOfWords, Classifier

from configs._variants import config_maker
from training.optimizers import adam

VARIANTS = {
    "": {
        "optimizer": adam(0.1),
        "train_steps": 40,
        "eval_every": 20,
        "save_every": 5,
        "log_every": 10,
        "checkpoints.keep": 2,
    },
    "smoke": {"train_steps": 20},
}
get_config = config_maker(BagOfWords, Classifier, VARIANTS)
