"""Making pictures: a generator and a discriminator, and how good the pictures are.

Zhang et al. (2019), section 4: the hinge loss (eq. 4), two learning rates, one step of
each network in turn; or the log loss of DCGAN. A step makes one batch of pictures,
where the authors' code makes one for each network. The discriminator learns to tell
them from as many real ones; then the generator learns from the gradient that the new
discriminator sends back to those pictures. Where the discriminator has batch norm, its
statistics are of real and of made pictures apart. A moving average of the generator's
parameters is scored and shown, with the statistics of batch norm and the estimates of
spectral norms of the generator itself.

What is measured, on a network that never changes, EfficientNet-lite0 trained on
ImageNet (`models.efficientnet`), of `config.evaluation.pictures` made pictures and as
many real ones of the same classes, drawn as in training: `frechet`, the Frechet
distance between Gaussians of their 1280 features (Heusel et al. 2017, there of
Inception's), and `score`, exp of the mean KL divergence between the classes that it
sees in a picture and in all (Salimans et al. 2016). These numbers compare with each
other and with no published one. `frechet_real` is the distance between two draws of so
many real pictures: what the best generator would have. The real pictures are those of
training: a generator that repeats them scores well. Of corners: see
`data.pictures.consistency`. `gamma_<network>_<size>` is how much of an attention is
used: |gamma|, as its sign is that of what is read, which could be turned round.

Works with any two models of this protocol (`models.sagan` shows it): fields `total` and
`classes`, `apply(variables, noise or picture, label, train=...)` and state in the
collections "batch_stats" and "spectral".

Axes: B pictures; I, J rows and columns; Z width of the noise; Y classes.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from data import pictures
from data.pictures import Pictures
from data.sizes import SPLITS, check_split
from errors import UserError
from models import efficientnet
from models.sagan import moving
from tasks import frozen
from training import parallel, plots
from training.state import make_optimizer
from training.task import Metrics, Prediction, Task

_BATCH = 100  # pictures that are made or looked at at a time
_DRAWS = 2**40  # seed of the real pictures that made ones are compared with
_SHOWN = 8  # pictures of a class that are drawn
_DRAWN = 4  # pictures whose attention is drawn
_ROWS = 20  # classes that are drawn, at most
_KEPT = ["batch_stats", "spectral"]


class Loss(NamedTuple):
    """What each network's logits cost.

    Attributes:
        real, made: of the discriminator, for real and made pictures.
        deceived: of the generator.
    """

    real: Callable[[jax.Array], jax.Array]
    made: Callable[[jax.Array], jax.Array]
    deceived: Callable[[jax.Array], jax.Array]


LOSSES = {
    "hinge": Loss(
        lambda x: jax.nn.relu(1 - x), lambda x: jax.nn.relu(1 + x), lambda x: -x
    ),
    "log": Loss(  # Goodfellow et al. (2014), the generator's as in section 3
        lambda x: jax.nn.softplus(-x), jax.nn.softplus, lambda x: jax.nn.softplus(-x)
    ),
}


@flax.struct.dataclass
class AdversarialState:
    """Everything that a checkpoint holds.

    Attributes:
        step: int32, the number of steps done.
        params: of "generator" and "discriminator".
        kept: their batch statistics and estimates of spectral norms.
        opt_state: of their optimizers.
        average: moving average of the generator's parameters.
    """

    step: jax.Array
    params: dict[str, Any]
    kept: dict[str, Any]
    opt_state: dict[str, Any]
    average: Any


class Adversarial(Task):
    """Trains, scores and shows a generator; see the module's docstring."""

    metric = ("quality", "max")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data, evaluation = config.data, config.evaluation
        if data.source not in pictures.SOURCES:
            raise UserError(
                f"config.data.source is {data.source!r}: must be one of "
                f"{', '.join(pictures.SOURCES)}"
            )
        if config.loss not in LOSSES:
            raise UserError(
                f"config.loss is {config.loss!r}: must be one of {', '.join(LOSSES)}"
            )
        for name, value, low in (
            ("data.rows", data.rows, 1),
            ("noise", config.noise, 1),
            # Corners are compared with those of others, and features have a deviation.
            ("evaluation.pictures", evaluation.pictures, pictures.OTHERS + 1),
            ("evaluation.size", evaluation.size, 1),
        ):
            if value < low:
                raise UserError(f"config.{name} is {value}: must be at least {low}")
        if not 0 <= config.average_decay < 1:
            raise UserError(
                f"config.average_decay is {config.average_decay}: must be in [0, 1)"
            )
        self._optimizers = {
            name: make_optimizer(config[name], name=name)
            for name in ("generator", "discriminator")
        }
        self._real = functools.cache(self._draw_real)
        self._build(1)
        self.check_model()

    def _build(self, classes: int) -> None:
        config = self.config
        fields = dict(config.model, classes=classes, total=parallel.total)
        families = {
            "generator": config.architecture,
            "discriminator": config.opponent,
        }
        self.models = {
            name: family(**fields, attention=tuple(config.attention[name]))
            for name, family in families.items()
        }
        self._jit_make = jax.jit(self._make)
        self._jit_see = jax.jit(self._see)

    # Data.

    @functools.cached_property
    def _pictures(self) -> Pictures | None:
        data, size = self.config.data, self.config.model.size
        if data.source == "corners":
            return None
        if data.source == "openmoji":
            return pictures.openmoji(size, tuple(data.groups))
        if not data.folder:
            raise UserError(
                "config.data.folder is missing: a folder of folders of pictures, one a "
                "class"
            )
        return pictures.folder(Path(data.folder), size)

    def prepare(self, workdir: Path, *, training: bool) -> None:
        """Reads the classes' names, from the data or the run directory; see `Task`."""
        path = Path(workdir) / "assets" / "classes.txt"
        if training:
            names = self._pictures.names if self._pictures else ("corners",)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(names) + "\n", "utf-8")
        try:
            self.classes = path.read_text("utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        self._build(len(self.classes))

    def train_data(self) -> pictures.Batches:
        """Returns the training batches."""
        return self._batches(self.config.data.rows, self.config.seed)

    def _batches(self, rows: int, seed: int) -> pictures.Batches:
        return pictures.Batches(self._pictures, self.config.model.size, rows, seed)

    # Training.

    def init_state(self, rng: jax.Array) -> AdversarialState:
        """Returns the state before the first step."""
        size, label = self.config.model.size, jnp.zeros(1, jnp.int32)
        blank = {
            "generator": jnp.zeros((1, self.config.noise)),
            "discriminator": jnp.zeros((1, size, size, 3)),
        }
        params, kept = {}, {}
        for number, (name, model) in enumerate(self.models.items()):
            key = jax.random.fold_in(rng, number)
            variables = model.init(key, blank[name], label, train=True)
            params[name] = variables["params"]
            kept[name] = {n: variables[n] for n in _KEPT if n in variables}
        optimizers = self._optimizers.items()
        return AdversarialState(
            jnp.zeros((), jnp.int32),
            params,
            kept,
            {name: optimizer.init(params[name]) for name, optimizer in optimizers},
            jax.tree.map(jnp.copy, params["generator"]),
        )

    def train_step(
        self, state: AdversarialState, batch: Any, rng: jax.Array
    ) -> tuple[AdversarialState, Metrics]:
        """One step of the discriminator, then one of the generator."""
        label, price = batch["label"], LOSSES[self.config.loss]
        real = batch["picture"].astype(jnp.float32) / 127.5 - 1
        noise = self._noise(rng, label)
        params, kept = dict(state.params), dict(state.kept)
        opt_state = dict(state.opt_state)

        def make(weights):
            return self._apply("generator", weights, kept, noise, label)

        made, back, kept["generator"] = jax.vjp(make, params["generator"], has_aux=True)

        def discriminator_loss(weights):
            shown = [(real, label), (made, label)]
            if "batch_stats" not in kept["discriminator"]:
                shown = [jax.tree.map(lambda *x: jnp.concatenate(x), *shown)]
            own, logits = dict(kept), []
            for part in shown:
                found, own["discriminator"] = self._apply(
                    "discriminator", weights, own, *part
                )
                logits.append(found)
            of_real, of_made = jnp.split(jnp.concatenate(logits), 2)
            losses = jnp.sum(price.real(of_real)), jnp.sum(price.made(of_made))
            return sum(losses), (own["discriminator"], losses)

        (loss, (new, losses)), grads = jax.value_and_grad(
            discriminator_loss, has_aux=True
        )(params["discriminator"])
        count = jnp.asarray(len(label), jnp.float32)
        loss, losses, grads, count = parallel.total((loss, losses, grads, count))
        kept["discriminator"] = new
        self._descend("discriminator", params, opt_state, grads, count)

        def generator_loss(shown):
            weights = params["discriminator"]
            logits, _ = self._apply("discriminator", weights, kept, shown, label)
            return jnp.sum(price.deceived(logits))

        value, gradient = jax.value_and_grad(generator_loss)(made)
        grads, value = parallel.total((back(gradient)[0], value))
        self._descend("generator", params, opt_state, grads, count)
        decay = moving(state.step, self.config.average_decay)
        average = jax.tree.map(
            lambda old, new: decay * old + (1 - decay) * new,
            *(state.average, params["generator"]),
        )
        metrics = {
            "loss": (loss, count),
            "loss_real": (losses[0], count),
            "loss_fake": (losses[1], count),
            "loss_generator": (value, count),
        }
        for name, gamma in _gammas(params).items():
            metrics[name] = gamma, jnp.ones(())
        return (
            AdversarialState(state.step + 1, params, kept, opt_state, average),
            metrics,
        )

    def _noise(self, rng, label):
        """What pictures of classes [B] are made from: [B, Z]."""
        return jax.random.normal(rng, (len(label), self.config.noise))

    def _apply(self, name, params, kept, x, label):
        """What a network gives in training, and what it keeps."""
        variables = {"params": params, **kept[name]}
        return self.models[name].apply(
            variables, x, label, train=True, mutable=list(kept[name])
        )

    def _descend(self, name, params, opt_state, grads, count) -> None:
        """Moves one network along the gradient of the mean."""
        grads = jax.tree.map(lambda g: g / count, grads)
        optimizer = self._optimizers[name]
        updates, opt_state[name] = optimizer.update(
            grads, opt_state[name], params[name]
        )
        params[name] = optax.apply_updates(params[name], updates)

    # Evaluation and figures.

    def evaluate(
        self, state: AdversarialState, split: str, *, out_dir: Path | None = None
    ) -> dict[str, Any]:
        """Scores what the average generator makes; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test": two draws of noise and of real pictures,
                which are those of training.
            out_dir: where the figures of a final evaluation go.

        Returns:
            What the module's docstring says, by name, and `quality`, the highest of
            which is the best: -`frechet`, or of corners `consistent` times `spread`, or
            1 where that is more; with `out_dir` also `pictures`, how many they stand
            on.
        """
        check_split(split)
        full, number = out_dir is not None, SPLITS.index(split)
        labels, real = self._real(number)
        made = self._made(state, labels, number)
        gammas = {n: float(g) for n, g in _gammas(state.params).items()}
        if self._pictures is None:
            scores = pictures.consistency(made)
            best = scores["consistent"] * min(scores["spread"], 1.0)
            scores = {"quality": best, **scores}
        else:
            features, classes = self._seen(made)
            distance = frechet(features, real)
            scores = {"quality": -distance, "frechet": distance}
            scores["score"] = inception(classes)
            if full:
                _, other = self._real(number + len(SPLITS))
                scores["frechet_real"] = frechet(other, real)
        if full:
            if plots.available():
                self._draw(state, out_dir / "figures", split)
            gammas["pictures"] = len(labels)
        return scores | gammas

    def figures(self, state: AdversarialState, out_dir: Path) -> list[Path]:
        """Draws pictures of each class, and where places of some of them look."""
        return self._draw(state, out_dir, "validation")

    def predict(
        self,
        state: AdversarialState,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Makes pictures of classes.

        Args:
            state: whose average generator to use.
            inputs: the name of a class each; an empty one has no picture.
            seed: of the noise.
            figures: a folder for a grid of pictures of each.

        Returns:
            For each class the path of its grid.

        Raises:
            UserError: for a class that there is not, or without a folder.
        """
        plots.require()
        if figures is None:
            raise UserError("--figures=FOLDER is needed: what is made is a picture")
        for line, name in enumerate(inputs, 1):
            if name.strip() and name.strip() not in self.classes:
                raise UserError(
                    f"line {line}: there is no class {name.strip()!r}, only "
                    f"{', '.join(self.classes)}"
                )
        answers = []
        for line, name in enumerate(inputs, 1):
            path, text = Path(figures) / f"pictures_{line:04d}.png", ""
            if name := name.strip():
                labels = np.full(_SHOWN**2, self.classes.index(name), np.int32)
                made = self._made(state, labels, seed + line)
                rows = made.reshape(_SHOWN, _SHOWN, *made.shape[1:])
                text = str(plots.picture_grid(rows, [""] * _SHOWN, name, path))
            answers.append([Prediction(text, 0.0)])
        return answers

    def _draw(self, state, folder: Path, split: str) -> list[Path]:
        seed, step = SPLITS.index(split), int(state.step)
        names = self.classes[:_ROWS]
        labels = np.repeat(np.arange(len(names), dtype=np.int32), _SHOWN)
        made = self._made(state, labels, seed)
        rows = made.reshape(-1, _SHOWN, *made.shape[1:])
        title, path = f"Made at step {step}", folder / f"pictures_{split}.png"
        paths = [plots.picture_grid(rows, names, title, path)]
        part = np.resize(labels[::_SHOWN], _BATCH)
        key, kept = jax.random.key(seed), state.kept["generator"]
        made, weights = jax.device_get(self._jit_make(state.average, kept, part, key))
        # Corners are seen from corners, drawings from what is drawn.
        edge = 1 / 8 if self._pictures is None else 1 / 4
        for found in weights:  # [B, I, J, K, L] of an attention, if there is one
            for number in range(min(_DRAWN, len(names))):
                size = found.shape[1]
                title = f"Where places of {size} x {size} look: {names[part[number]]}"
                path = folder / f"attention_{size}_{split}_{number + 1}.png"
                drawn = made[number], found[number], edge
                paths.append(_draw_places(*drawn, title, path))
        return paths

    def _made(self, state, labels: np.ndarray, seed: int) -> np.ndarray:
        """Pictures uint8 [N, I, J, 3] of classes [N]."""
        found = []
        for number, start in enumerate(range(0, len(labels), _BATCH)):
            part = np.resize(labels[start : start + _BATCH], _BATCH)
            rng = jax.random.fold_in(jax.random.key(seed), number)
            made, _ = self._jit_make(state.average, state.kept["generator"], part, rng)
            found.append(np.asarray(made))
        return np.concatenate(found)[: len(labels)]

    def _make(self, params, kept, label, rng):
        """Pictures uint8, and the weights of the attention, if there is one."""
        noise = self._noise(rng, label)
        made, sown = self.models["generator"].apply(
            *({"params": params, **kept}, noise, label),
            train=False,
            mutable=["attention"],
        )
        made = jnp.round((made + 1) * 127.5).astype(jnp.uint8)
        return made, jax.tree.leaves(sown.get("attention", {}))

    def _draw_real(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Classes of real pictures, drawn as in training, and their features."""
        batch = self._batches(self.config.evaluation.pictures, _DRAWS)[number]
        if self._pictures is None:
            return batch["label"], None
        return batch["label"], self._seen(batch["picture"])[0]

    def _seen(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features [N, 1280] and classes' probabilities [N, 1000] of pictures."""
        features, classes = frozen.look(self._jit_see, values, _BATCH)
        return features.astype(np.float64), classes.astype(np.float64)

    def _see(self, params, values):
        size = self.config.evaluation.size
        shape = (len(values), size, size, 3)
        values = jax.image.resize(values.astype(jnp.float32), shape, "bilinear")
        features = efficientnet.vectors(params, values)
        return features, jax.nn.softmax(efficientnet.classify(params, features))


def _draw_places(
    picture: np.ndarray, weights: np.ndarray, edge: float, title: str, path: Path
) -> Path:
    """Draws where five places look, the middle and four that far from the edges."""
    rows, columns = weights.shape[:2]
    cell = np.array([len(picture) // rows, picture.shape[1] // columns])
    places = [(0.5, 0.5), *itertools.product((edge, 1 - edge), repeat=2)]
    chosen = [(int(y * rows), int(x * columns)) for y, x in places]
    corners = [cell * place for place in chosen]
    strip = plots.Strip(
        [f"row {y + 1}, column {x + 1}" for y, x in chosen],
        np.stack([np.abs(weights[place]) for place in chosen]),
        [(*corner, *(corner + cell)) for corner in corners],
    )
    return plots.caption_strips(picture, [strip], title, path)


def frechet(one: np.ndarray, other: np.ndarray) -> float:
    """The Frechet distance of two Gaussians, fitted to features [N, F] and [M, F].

    |m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)), Heusel et al. (2017), eq. 6.
    """
    means = one.mean(0), other.mean(0)
    # The trace of (C C')^(1/2) is the sum of the singular values of A A'^T, where
    # C = A^T A; of A = Q R, R does as well, and has no more than F rows.
    parts = [
        np.linalg.qr((x - m) / np.sqrt(len(x) - 1), mode="r")
        for x, m in zip((one, other), means, strict=True)
    ]
    cross = np.linalg.svd(parts[0] @ parts[1].T, compute_uv=False).sum()
    traces = sum(np.square(part).sum() for part in parts)
    return float(np.square(means[0] - means[1]).sum() + traces - 2 * cross)


def inception(classes: np.ndarray) -> float:
    """Salimans et al. (2016): exp of the mean KL divergence of [N, Y] to their mean."""
    log = np.log(np.maximum(classes, 1e-30))
    mean = classes.mean(0)
    divergence = classes * (log - np.log(np.maximum(mean, 1e-30)))
    return float(np.exp(divergence.sum(1).mean()))


def _gammas(params: dict[str, Any]) -> dict[str, jax.Array]:
    """How much of each of its attentions a network uses, by name."""
    return {
        f"gamma_{network}_{block.removeprefix('attention_')}": abs(values["gamma"])
        for network, blocks in params.items()
        for block, values in blocks.items()
        if "gamma" in values
    }
