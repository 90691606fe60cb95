"""Tasks about directions, kinds, sizes, paths and motives: 4 and 15 to 20.

Differs from the rules of Weston et al. (2016): in task 18 the chocolates are always
smaller than the four containers, and a story has at most five questions.
"""

from collections.abc import Iterator

from tasks.questions.babi.moves import GET, go
from tasks.questions.babi.text import PLACES, Story

_ANIMALS = {"mouse": "Mice", "sheep": "Sheep", "wolf": "Wolves", "cat": "Cats"}
_OWNERS = ("Gertrude", "Winona", "Jessica", "Emily")
_KINDS = ("swan", "lion", "frog", "rhino")
_COLOURS = ("gray", "white", "yellow", "green")
_PETS = ("Lily", "Bernhard", "Greg", "Julius", "Brian")
_SHAPES = ("square", "rectangle", "triangle", "sphere")
_TINTS = ("", "red ", "blue ", "pink ", "yellow ")
_SMALL = ("chocolate", "box of chocolates")
_LARGE = ("box", "chest", "container", "suitcase")
_STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
_SIDES = {
    "to the right of": (1, 0),
    "to the left of": (-1, 0),
    "above": (0, 1),
    "below": (0, -1),
}
# State of a person -> place and object.
_MOTIVES = {
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "tired": ("bedroom", "pajamas"),
    "bored": ("garden", "football"),
}
_PEOPLE = ("Jason", "Antoine", "Sumit", "Yann")


def two_arguments(story: Story) -> None:
    """Task 4: the place on one side of another."""
    rng = story.rng
    first, middle, last = rng.sample(PLACES, 3)
    side = rng.choice(("north", "east"))
    facts = [(middle, first), (last, middle)]
    rng.shuffle(facts)
    lines = {
        pair: story.state(f"The {pair[0]} is {side} of the {pair[1]}.")
        for pair in facts
    }
    if rng.random() < 0.5:
        text, support = f"What is {side} of the {middle}?", lines[last, middle]
        story.ask(text, last, [support])
    else:
        text, support = f"What is the {middle} {side} of?", lines[middle, first]
        story.ask(text, first, [support])


def deduction(story: Story) -> None:
    """Task 15: the fear of an animal, from its kind."""
    rng = story.rng
    kinds = list(_ANIMALS)
    fears = {kind: rng.choice([x for x in kinds if x != kind]) for kind in kinds}
    owners = dict(zip(_OWNERS, rng.sample(kinds, len(kinds)), strict=True))
    plural = {kind: name.lower() for kind, name in _ANIMALS.items()}
    texts = {k: f"{_ANIMALS[k]} are afraid of {plural[x]}." for k, x in fears.items()}
    texts |= {owner: f"{owner} is a {kind}." for owner, kind in owners.items()}
    names = rng.sample(list(texts), len(texts))
    line = {name: story.state(texts[name]) for name in names}
    for owner in rng.sample(_OWNERS, len(_OWNERS)):
        kind = owners[owner]
        text = f"What is {owner} afraid of?"
        story.ask(text, fears[kind], [line[owner], line[kind]])


def induction(story: Story) -> None:
    """Task 16: the colour of an animal, from another one of its kind."""
    rng = story.rng
    colours = dict(zip(_KINDS, rng.sample(_COLOURS, len(_COLOURS)), strict=True))
    asked_pet = rng.choice(_PETS)
    while True:
        kinds = {pet: rng.choice(_KINDS) for pet in _PETS}
        same = [p for p in _PETS if p != asked_pet and kinds[p] == kinds[asked_pet]]
        if same:
            break
    texts = {(pet, "kind"): f"{pet} is a {kinds[pet]}." for pet in _PETS}
    texts |= {
        (pet, "colour"): f"{pet} is {colours[kinds[pet]]}."
        for pet in _PETS
        if pet != asked_pet
    }
    names = rng.sample(list(texts), len(texts))
    line = {name: story.state(texts[name]) for name in names}
    support = [line[asked_pet, "kind"]]
    support += [line[pet, x] for x in ("kind", "colour") for pet in same]
    text, answer = f"What color is {asked_pet}?", colours[kinds[asked_pet]]
    story.ask(text, answer, support)


def positions(story: Story) -> None:
    """Task 17: whether a shape is on one side of another."""
    rng, shapes = story.rng, []
    while len(shapes) < 3:
        tint, shape = rng.choice(_TINTS), rng.choice(_SHAPES)
        same = [x for x in shapes if x[1] == shape]
        # "the square" is ambiguous beside "the red square".
        if not same or (tint and all(x[0] not in ("", tint) for x in same)):
            shapes.append((tint, shape))
    names = [tint + shape for tint, shape in shapes]
    grid = {names[0]: (0, 0)}
    for previous, name in zip(names, names[1:], strict=False):
        while True:
            side, step = rng.choice(list(_SIDES.items()))
            place = _add(grid[previous], step)
            if place not in grid.values():
                break
        grid[name] = place
        story.state(f"The {name} is {side} the {previous}.")
    for _ in range(8):
        first, second = rng.sample(names, 2)
        (x, y), (z, w) = grid[first], grid[second]
        dots = {side: i * (x - z) + j * (y - w) for side, (i, j) in _SIDES.items()}
        sides = [(side, dot > 0) for side, dot in dots.items() if dot]
        truth = rng.random() < 0.5
        side = rng.choice([side for side, holds in sides if holds == truth])
        text = f"Is the {first} {side} the {second}?"
        story.ask(text, "yes" if truth else "no", (1, 2))


def sizes(story: Story) -> None:
    """Task 18: the larger of two objects, from two comparisons."""
    rng = story.rng
    order = [*_SMALL, *rng.sample(_LARGE, len(_LARGE))]  # by size
    pairs = [(i, j) for j in range(len(order)) for i in range(j)]
    first, second, third = sorted(rng.sample(range(len(order)), 3))
    chosen = [(first, second), (second, third)]
    others = rng.sample(pairs, len(pairs))
    for _ in range(rng.randint(2, 7)):
        for pair in others:
            if pair not in chosen and _two_steps([*chosen, pair]):
                chosen.append(pair)
                break
    rng.shuffle(chosen)
    line = {}
    for i, j in chosen:
        small, large = order[i], order[j]
        line[i, j] = story.state(
            f"The {small} fits inside the {large}.",
            f"The {large} is bigger than the {small}.",
        )
    questions = _two_steps(chosen)
    for i, k, j in rng.sample(questions, min(5, len(questions))):
        small, large, answer = order[i], order[j], "yes"
        if rng.random() < 0.5:
            small, large, answer = large, small, "no"
        text = rng.choice(
            (
                f"Does the {small} fit in the {large}?",
                f"Is the {large} bigger than the {small}?",
            )
        )
        story.ask(text, answer, [line[i, k], line[k, j]])


def _two_steps(pairs: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Triples (i, k, j) for which i < j follows from two comparisons, not from one."""
    steps = {
        (i, j): (i, k, j)
        for i, k in pairs
        for m, j in pairs
        if m == k and (i, j) not in pairs
    }
    return list(steps.values())


def paths(story: Story) -> None:
    """Task 19: the directions of the only path between two places, of two steps."""
    rng = story.rng
    while True:
        names = rng.sample(PLACES, 5)
        grid = {names[0]: (0, 0)}
        facts = []
        for n, name in enumerate(names[1:], 1):
            start = names[n - 1] if n < 3 else rng.choice(names[:n])
            side, step = rng.choice(list(_STEPS.items()))
            grid[name] = _add(grid[start], step)
            facts.append((start, side, name))
        if len(set(grid.values())) < len(grid):
            continue
        if sum(1 for _ in _routes(grid, names[0], names[2], ())) == 1:
            break
    line = {}
    for fact in rng.sample(facts, len(facts)):
        start, side, name = fact
        line[fact] = story.state(
            f"The {name} is {side} of the {start}.",
            f"The {start} is {_OPPOSITE[side]} of the {name}.",
        )
    answer = ",".join(side[0] for _, side, _ in facts[:2])
    text = f"How do you go from the {names[0]} to the {names[2]}?"
    story.ask(text, answer, [line[fact] for fact in facts[:2]])


def _routes(grid, start, end, visited) -> Iterator[tuple[str, ...]]:
    """Paths over neighbouring places, without repetition."""
    visited = (*visited, start)
    if start == end:
        yield visited
        return
    neighbours = {_add(grid[start], step) for step in _STEPS.values()}
    for name, place in grid.items():
        if place in neighbours and name not in visited:
            yield from _routes(grid, name, end, visited)


def motives(story: Story) -> None:
    """Task 20: the next place of a person, or the motive of an action."""
    rng = story.rng
    states = dict(zip(_PEOPLE, rng.sample(list(_MOTIVES), 4), strict=True))
    done = dict.fromkeys(_PEOPLE, 0)  # statements and questions on each person
    line: dict[str, int] = {}
    for _ in range(12):
        name = rng.choice([x for x in _PEOPLE if done[x] < 6 and done[x] % 2 == 0])
        state = states[name]
        place, thing = _MOTIVES[state]
        if done[name] == 0:
            line[name] = story.state(f"{name} is {state}.")
            text, answer = f"Where will {name} go?", place
        elif done[name] == 2:
            story.state(*go(name, place))
            text, answer = f"Why did {name} go to the {place}?", state
        else:
            story.state(*(f"{name} {verb} the {thing} there." for verb in GET))
            text, answer = f"Why did {name} get the {thing}?", state
        story.ask(text, answer, [line[name]])
        done[name] += 2


def _add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]
