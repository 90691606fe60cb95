"""Tasks about the places of people: 9 to 14.

Differs from the rules of Weston et al. (2016): in task 10, a person who is "either" in
one of two places has moved there without a statement that says so, and half of the
questions are about a place that the latest statement names.
"""

import random

from tasks.questions.babi.moves import go
from tasks.questions.babi.text import ACTORS, PLACES, Story

_THEN = ("Then", "After that", "Afterwards", "Following that")
_TIMES = ("yesterday", "this morning", "this afternoon", "this evening")


def _other(rng: random.Random, *places: str) -> str:
    return rng.choice([place for place in PLACES if place not in places])


def negation(story: Story) -> None:
    """Task 9: whether a person is at a place; the latest statement may deny it."""
    rng = story.rng
    places = {actor: rng.choice(PLACES) for actor in ACTORS}
    # Latest statement on each person: its place, whether they are there, its number.
    latest: dict[str, tuple[str, bool, int]] = {}
    for _ in range(5):
        for _ in range(2):
            actor, present = rng.choice(list(ACTORS)), True
            if rng.random() < 0.5:
                place = places[actor] = _other(rng, places[actor])
                line = story.state(*go(actor, place))
            elif rng.random() < 0.5:
                place = places[actor]
                line = story.state(f"{actor} is in the {place}.")
            else:
                place, present = _other(rng, places[actor]), False
                denials = ("is not", "is no longer")
                line = story.state(*(f"{actor} {x} in the {place}." for x in denials))
            latest[actor] = place, present, line
        actor = rng.choice(list(latest))
        place, present, line = latest[actor]
        if present and rng.random() < 0.5:
            place, present = _other(rng, place), False
        answer = "yes" if present else "no"
        story.ask(f"Is {actor} in the {place}?", answer, [line])


def indefinite(story: Story) -> None:
    """Task 10: whether a person is at a place: yes, no or maybe."""
    rng = story.rng
    options: dict[str, tuple[str, ...]] = {}  # possible places of each person
    line: dict[str, int] = {}
    for _ in range(5):
        for _ in range(2):
            actor = rng.choice(list(ACTORS))
            kind = rng.choice(("go", "is", "either"))
            place = _other(rng, *options.get(actor, ()))
            if kind == "either":
                other = _other(rng, place)
                options[actor] = place, other
                texts = [f"{actor} is either in the {place} or the {other}."]
            else:
                options[actor] = (place,)
                is_there = [f"{actor} is in the {place}."]
                texts = is_there if kind == "is" else go(actor, place)
            line[actor] = story.state(*texts)
        actor = rng.choice(list(options))
        named = options[actor]
        place = rng.choice(named) if rng.random() < 0.5 else _other(rng, *named)
        answer = "no"
        if place in named:
            answer = "yes" if len(named) == 1 else "maybe"
        story.ask(f"Is {actor} in the {place}?", answer, [line[actor]])


def coreference(story: Story) -> None:
    """Task 11: the place of a person whom the last move calls "he" or "she"."""
    rng = story.rng
    places: dict[str, str] = {}
    for _ in range(5):
        actor = rng.choice(list(ACTORS))
        first = _other(rng, places.get(actor, ""))
        who = story.state(*go(actor, first))
        places[actor] = _other(rng, first)
        moves = go(ACTORS[actor], places[actor])
        where = story.state(*(f"{then} {move}" for then in _THEN for move in moves))
        story.ask(f"Where is {actor}?", places[actor], (who, where))


def conjunction(story: Story) -> None:
    """Task 12: the place of one of two people who move together."""
    rng = story.rng
    for _ in range(5):
        visits: dict[str, tuple[str, list[int]]] = {}
        actors = []
        for place in rng.sample(PLACES, 2):
            pair = rng.sample(list(ACTORS), 2)
            line = story.state(*go(" and ".join(pair), place))
            visits.update((actor, (place, [line])) for actor in pair)
            actors += pair
        actor = rng.choice(actors)
        story.ask(f"Where is {actor}?", *visits[actor])


def compound_coreference(story: Story) -> None:
    """Task 13: the place of one of two people whom the last move calls "they"."""
    rng = story.rng
    visits: dict[str, tuple[str, tuple[int, int]]] = {}
    for _ in range(5):
        pair, (first, second) = rng.sample(list(ACTORS), 2), rng.sample(PLACES, 2)
        who = story.state(*go(" and ".join(pair), first))
        moves = go("they", second)
        where = story.state(*(f"{then} {move}" for then in _THEN for move in moves))
        visits.update((actor, (second, (who, where))) for actor in pair)
        actor = rng.choice(pair)
        story.ask(f"Where is {actor}?", *visits[actor])


def time(story: Story) -> None:
    """Task 14: the place before another place; each move has a time of day."""
    rng = story.rng
    visits: dict[str, dict[int, tuple[str, int]]] = {actor: {} for actor in ACTORS}
    chosen = rng.choice(list(ACTORS))  # makes at least two of the first four moves
    reserved = rng.sample(range(4), 2)
    for move in range(12):
        free = [x for x in ACTORS if len(visits[x]) < len(_TIMES)]
        actor = chosen if move in reserved else rng.choice(free)
        hour = rng.choice([t for t in range(len(_TIMES)) if t not in visits[actor]])
        place = _other(rng, *(place for place, _ in visits[actor].values()))
        texts = [text.removesuffix(".") for text in go(actor, place)]
        when = _TIMES[hour]
        line = story.state(
            *(f"{text} {when}." for text in texts),
            *(f"{when.capitalize()} {text}." for text in texts),
        )
        visits[actor][hour] = place, line
        if move >= 3 and move % 2:
            _ask_before(story, visits)


def _ask_before(story: Story, visits: dict[str, dict[int, tuple[str, int]]]) -> None:
    actor = story.rng.choice([x for x in visits if len(visits[x]) > 1])
    hours = sorted(visits[actor])
    n = story.rng.randrange(len(hours) - 1)
    (before, first), (after, second) = (visits[actor][hours[n + i]] for i in (0, 1))
    text = f"Where was {actor} before the {after}?"
    story.ask(text, before, (second, first))
