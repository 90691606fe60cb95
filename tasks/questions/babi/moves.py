"""Tasks about people who move and carry objects: 1, 2, 3, 5, 6, 7 and 8.

People and objects start at random places that the reader does not know. A valid action
is drawn at each step: a person moves to another place, gets an object that is at the
same place, drops an object, or gives one to a person at the same place.

Differs from the rules of Weston et al. (2016) as their authors' second generator has
them: the statements of task 5 are in the order of the events, and more statements may
follow the gift that a question is about; task 6 has objects, as in the published
stories; in tasks 7 and 8, a person who has only received objects may be asked about,
and gifts to a person are supporting facts; the answers of task 8 are in the order of
receipt, as in the published stories, not in one order for all questions. The published
stories, which come from the first generator, also ask about dropped objects in task 2.
"""

from typing import NamedTuple

from tasks.questions.babi.text import ACTORS, OBJECTS, PLACES, Story

_GO = ("moved", "went", "journeyed", "travelled", "went back")
GET = ("got", "took", "grabbed", "picked up")
_DROP = ("dropped", "left", "put down", "discarded")
_GIVE = ("gave", "handed", "passed")
_GIVERS = ("Bill", "Fred", "Jeff", "Mary")
_NUMBERS = ("none", "one", "two", "three")


def go(actor: str, place: str) -> list[str]:
    """Returns the sentences about a person who moves to a place."""
    return [f"{actor} {verb} to the {place}." for verb in _GO]


class Visit(NamedTuple):
    """A stay of an object at a place, as known to the reader."""

    place: str  # the place
    # numbers of the statements from which the stay is first known
    arrival: tuple[int, ...]
    support: tuple[int, ...]  # numbers of the latest statements from which it is known


class Gift(NamedTuple):
    """An object that was given away, and the number of the statement."""

    giver: str
    thing: str
    receiver: str
    line: int


class World:
    """People, places and objects, and the reader's knowledge of them.

    Attributes:
        places: place of each person and object.
        holders: person who holds each object, if any.
        moved: number of the statement of each person's last move, if any.
        carried: for each object, the number of the statement on its current holder, or
            on the person who dropped it.
        visits: stays of each object at known places, the latest last.
        handled: numbers of the statements on each person's objects.
        gifts: gifts so far.
    """

    def __init__(self, story: Story, actors: tuple[str, ...] = tuple(ACTORS)):
        self.story, self.rng, self.actors = story, story.rng, actors
        self.places = {name: self.rng.choice(PLACES) for name in (*actors, *OBJECTS)}
        self.holders: dict[str, str] = {}
        self.moved: dict[str, int] = {}
        self.carried: dict[str, int] = {}
        self.visits: dict[str, list[Visit]] = {thing: [] for thing in OBJECTS}
        self.handled: dict[str, list[int]] = {}
        self.gifts: list[Gift] = []

    def act(self, *actions: str) -> None:
        """Performs a random valid action.

        The kinds, equally probable: "go", "get", "drop", "give", and "handle", which
        gets or drops.
        """
        while not getattr(self, f"_{self.rng.choice(actions)}")():
            pass

    def _go(self) -> bool:
        actor = self.rng.choice(self.actors)
        place = self.rng.choice([x for x in PLACES if x != self.places[actor]])
        self.places[actor] = place
        line = self.moved[actor] = self.story.state(*go(actor, place))
        for thing, holder in self.holders.items():
            if holder == actor:
                self.places[thing] = place
                self._visit(thing, self.carried[thing], line)
        return True

    def _get(self) -> bool:
        return self._transfer(self._takers())

    def _drop(self) -> bool:
        return self._transfer(self._droppers())

    def _handle(self) -> bool:
        return self._transfer(self._takers() + self._droppers())

    def _takers(self) -> list[tuple[str, str]]:
        return [
            (actor, thing)
            for actor in self.actors
            for thing in OBJECTS
            if thing not in self.holders and self.places[thing] == self.places[actor]
        ]

    def _droppers(self) -> list[tuple[str, str]]:
        return [(actor, thing) for thing, actor in self.holders.items()]

    def _transfer(self, pairs: list[tuple[str, str]]) -> bool:
        """Draws a (person, object): the person gets the object, or drops it if held."""
        if not pairs:
            return False
        actor, thing = self.rng.choice(pairs)
        if thing in self.holders:
            verbs = _DROP
            del self.holders[thing]
        else:
            verbs = GET
            self.holders[thing] = actor
        texts = [f"{actor} {verb} the {thing}" for verb in verbs]
        self._state(
            actor, thing, *(f"{x}{end}." for x in texts for end in ("", " there"))
        )
        return True

    def _give(self) -> bool:
        options = [
            (giver, thing, receiver)
            for thing, giver in self.holders.items()
            for receiver in self.actors
            if receiver != giver and self.places[receiver] == self.places[giver]
        ]
        if not options:
            return False
        giver, thing, receiver = self.rng.choice(options)
        self.holders[thing] = receiver
        texts = (f"{giver} {verb} the {thing} to {receiver}." for verb in _GIVE)
        line = self._state(giver, thing, *texts)
        self.handled.setdefault(receiver, []).append(line)
        self.gifts.append(Gift(giver, thing, receiver, line))
        return True

    def _state(self, actor: str, thing: str, *texts: str) -> int:
        """States what happens to an object at the place of a person."""
        line = self.carried[thing] = self.story.state(*texts)
        self.handled.setdefault(actor, []).append(line)
        if actor in self.moved:
            self._visit(thing, line, self.moved[actor])
        return line

    def _visit(self, thing: str, carried: int, moved: int) -> None:
        """Adds a known place, or updates the support of the current stay."""
        visits, place = self.visits[thing], self.places[thing]
        support = carried, moved
        if visits and visits[-1].place == place:
            visits[-1] = visits[-1]._replace(support=support)
        else:
            visits.append(Visit(place, support, support))


def _places(story: Story, ask, *actions: str) -> None:
    """Five questions, which `ask(world)` adds at random steps."""
    world = World(story)
    while story.questions < 5:
        world.act(*actions)
        if story.pause > 2 and story.rng.random() < 0.5:
            ask(world)


def single_fact(story: Story) -> None:
    """Task 1: the place of a person, from one fact."""
    rng = story.rng
    world = World(story)
    for _ in range(5):
        world.act("go")
        world.act("go")
        actor = rng.choice(list(world.moved))
        support = [world.moved[actor]]
        story.ask(f"Where is {actor}?", world.places[actor], support)


def two_facts(story: Story) -> None:
    """Task 2: the place of a held object, from its last transfer and a move."""

    def ask(world):
        things = [x for x, holder in world.holders.items() if holder in world.moved]
        if things:
            thing = world.rng.choice(things)
            visit = world.visits[thing][-1]
            story.ask(f"Where is the {thing}?", visit.place, visit.support)

    _places(story, ask, "handle", "handle", "go")


def three_facts(story: Story) -> None:
    """Task 3: the place of an object before its current place."""

    def ask(world):
        things = [thing for thing in OBJECTS if len(world.visits[thing]) > 1]
        if things:
            thing = world.rng.choice(things)
            before, last = world.visits[thing][-2:]
            text = f"Where was the {thing} before the {last.place}?"
            story.ask(text, before.place, (*last.arrival, *before.arrival))

    _places(story, ask, "handle", "handle", "go")


def three_arguments(story: Story) -> None:
    """Task 5: giver, receiver or object of the latest gift."""
    rng = story.rng
    world = World(story, _GIVERS)
    forms = (
        ("What did {giver} give to {receiver}?", "thing"),
        ("Who gave the {thing} to {receiver}?", "giver"),
        ("Who gave the {thing}?", "giver"),
        ("Who did {giver} give the {thing} to?", "receiver"),
        ("Who received the {thing}?", "receiver"),
    )
    while story.questions < 5:
        world.act("get", "give", "go")
        since = len(story.lines) - story.pause
        gift = world.gifts[-1] if world.gifts else None
        if story.pause > 2 and gift and gift.line > since and rng.random() < 0.5:
            form, field = rng.choice(forms)
            story.ask(form.format(**gift._asdict()), getattr(gift, field), [gift.line])


def yes_no(story: Story) -> None:
    """Task 6: whether a person is at a place."""
    rng = story.rng
    world = World(story)
    while story.questions < 5:
        world.act("go", "go", "get", "drop")
        if story.pause > 1 and world.moved:
            actor = rng.choice(list(world.moved))
            place = world.places[actor]
            if rng.random() < 0.5:
                place = rng.choice([x for x in PLACES if x != place])
            answer = "yes" if place == world.places[actor] else "no"
            text = f"Is {actor} in the {place}?"
            story.ask(text, answer, [world.moved[actor]])


def _objects(story: Story, form: str, answer) -> None:
    """Five questions about the objects of a person."""
    world = World(story)
    while story.questions < 5:
        world.act("handle", "give", "give", "go")
        if story.pause > 1 and world.handled:
            actor = story.rng.choice(list(world.handled))
            held = [x for x, holder in world.holders.items() if holder == actor]
            held.sort(key=world.carried.__getitem__)
            story.ask(form.format(actor), answer(held), world.handled[actor])


def counting(story: Story) -> None:
    """Task 7: the number of objects that a person carries."""
    form = "How many objects is {} carrying?"
    _objects(story, form, lambda held: _NUMBERS[len(held)])


def lists(story: Story) -> None:
    """Task 8: the objects that a person carries, in the order of receipt."""
    form = "What is {} carrying?"
    _objects(story, form, lambda held: ",".join(held) or "nothing")
