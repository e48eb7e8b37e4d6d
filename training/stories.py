"""Writes short texts in simple English from templates, as prompt and answer pairs.

    python -m training.stories --count 200 --seed 1 > prompts.txt      # prompts for aps eval-text

A model of 4 million parameters that learns for an hour on one core cannot learn English at large
(TinyStories, Eldan and Li 2023, shows what such models can learn: short texts with few words whose
meaning is regular). These texts describe a small world in which animals live somewhere and eat
something, tools have a purpose, and what happens to somebody explains how they feel.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from random import Random

from training import templates, world

Pair = tuple[str, str]
"""A prompt and its answer."""

TABLES = {
    "animals": (world.ANIMALS, ("name", "place", "food", "skill")),
    "things": (world.THINGS, ("name", "what", "use")),
    "places": (world.PLACES, ("name", "what", "use")),
    "jobs": (world.JOBS, ("name", "does", "knows")),
    "foods": (world.FOODS, ("name", "of", "side")),
    "plants": (world.PLANTS, ("name", "kind", "place", "has")),
    "nature": (world.NATURE, ("name", "what", "does")),
}
"""Tables of facts with the names of their columns."""
FACT_WEIGHTS = (6, 7, 4, 3, 3, 3, 3)
KINDS = {"facts": 30, "story": 35, "sentence": 15, "personal": 20}
"""Kinds of text with their weights."""

UNCOUNTED = {"grass", "corn", "wheat", "ivy", "rain", "snow", "wind", "fire", "ice"}
UNIQUE = {"sun", "moon", "sea", "morning", "night", "winter", "summer", "spring", "autumn"}
MEN_ONLY, WOMEN_ONLY = {"king", "fisherman"}, {"queen"}


class Scene(dict[str, str]):
    """Words that fill a template; ``a_x`` is the word ``x`` with its indefinite article."""

    def __missing__(self, key: str) -> str:
        word = self[key.removeprefix("a_")] if key.startswith("a_") else None
        if word is None:
            raise KeyError(key)
        return a(word)


def a(words: str) -> str:
    """Adds the indefinite article."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def general(noun: str) -> str:
    """The noun with the article that a definition needs."""
    if noun in UNCOUNTED or noun in {food for food, *_ in world.FOODS}:
        return noun
    return f"the {noun}" if noun in UNIQUE else a(noun)


def lines(text: str) -> list[str]:
    """Lines without indentation."""
    return [line.strip() for line in text.strip().splitlines()]


def one_of(alternatives: str, rng: Random) -> str:
    """One of the alternatives between slashes."""
    return rng.choice(alternatives.split("/")).strip()


def prose(sentences: Sequence[str], scene: Scene) -> str:
    """Fills in the words and capitalises every sentence."""
    text = " ".join(sentences).format_map(scene)
    return re.sub(r"(^|[.?!] )(\w)", lambda m: m[1] + m[2].upper(), text)


def facts(rng: Random) -> Pair:
    """Asks what something is; one to three true sentences, the definition first."""
    (kind,) = rng.choices(list(TABLES), FACT_WEIGHTS)
    table, columns = TABLES[kind]
    scene = Scene(zip(columns, rng.choice(table), strict=True), color=rng.choice(world.COLORS))
    name = scene["name"]
    scene["general"] = general(name)
    parts = [one_of(line, rng) for line in lines(templates.FACTS[kind])]
    prompt = rng.choice(
        (
            f"What is {general(name)}?",
            f"What is {name}?",
            f"Describe {general(name)}.",
            f"Explain what {general(name)} is.",
        )
    )
    return prompt, prose(parts[: rng.randint(1, 3)], scene)


def hero(rng: Random) -> Scene:
    """Whom a story is about: a named person, a child, a person by job, or an animal."""
    (kind,) = rng.choices(("name", "child", "job", "animal"), (5, 2, 3, 5))
    if kind == "animal":
        noun, home, food, _ = rng.choice(world.ANIMALS)
        scene = Scene(he="it", him="it", his="its", home=home, food=food)
    else:
        woman = rng.random() < 0.5
        names = world.WOMEN if woman else world.MEN
        child = "girl" if woman else "boy"
        noun = {"name": rng.choice(names), "child": child, "job": rng.choice(world.JOBS)[0]}[kind]
        woman = (woman or noun in WOMEN_ONLY) and noun not in MEN_ONLY
        he, him, his = ("she", "her", "her") if woman else ("he", "him", "his")
        scene = Scene(he=he, him=him, his=his, child=child)
        scene["home"] = rng.choice(("in a small house", "in the village", "by the sea"))
        scene["food"] = rng.choice(("bread", "soup", "apple pie", "cheese"))
    named = kind == "name"
    scene.update(noun=noun, hero=noun if named else f"the {noun}", named="yes" if named else "")
    scene["first"] = a(f"{rng.choice(world.SIZES)} {noun}")
    return scene


def surroundings(rng: Random, good: bool, noun: str = "") -> Scene:
    """What else may occur in a text, none of it called ``noun``."""
    animal, home, diet, _ = rng.choice([row for row in world.ANIMALS if row[0] != noun])
    thing, color = rng.choice(world.THINGS)[0], rng.choice(world.COLORS)
    return Scene(
        animal=animal,
        home=home,
        diet=diet,
        thing=thing,
        color=color,
        item=f"{color} {thing}",
        food=rng.choice(world.FOODS)[0],
        place=rng.choice(world.PLACES)[0],
        friend=rng.choice([name for name in world.MEN + world.WOMEN if name != noun]),
        size=rng.choice(world.SIZES),
        feeling=rng.choice(world.GOOD if good else world.BAD),
        mood=rng.choice(world.GOOD if good else world.BAD),
        quality=rng.choice(world.FINE if good else world.POOR),
        fortune="found" if good else "had no",
        likes="likes" if good else "hates",
        storm="storm",
    )


def asked(form: str, topic: str, rng: Random) -> str:
    """A request for a text about a topic."""
    return rng.choice(
        (
            f"Write a {form} about {topic}.",
            f"Tell me a {form} about {topic}.",
            f"Write a short {form} about {topic}.",
            f"Write about {topic}.",
        )
    )


def story(rng: Random, good: bool) -> Pair:
    """Somebody, what happens to them, and a good or bad end."""
    who = hero(rng)
    scene = Scene(surroundings(rng, good, who["noun"]) | who)
    topic, event = rng.choice(templates.HAPPY_EVENTS if good else templates.SAD_EVENTS)
    opening = templates.NAMED_OPENINGS if who["named"] else templates.OPENINGS
    ending = templates.HAPPY_ENDINGS if good else templates.SAD_ENDINGS
    sentences = (
        rng.choice(lines(opening)),
        f"{rng.choice(templates.DAYS)}, {event}",
        rng.choice(lines(ending)),
    )
    about = rng.choice((who["noun"], scene[topic]))
    return asked("story", about, rng), prose(sentences, scene)


def sentence(rng: Random, good: bool) -> Pair:
    """A single sentence about something."""
    scene = surroundings(rng, good)
    topic, text = rng.choice(templates.SENTENCES)
    return asked("sentence", scene[topic], rng), prose([text], scene)


def personal(rng: Random, good: bool) -> Pair:
    """A request for something personal, and an answer in the first person."""
    hobby, other = rng.sample(world.HOBBIES, 2)
    food, _, side = rng.choice(world.FOODS)
    place, _, use = rng.choice(world.PLACES)
    scene = surroundings(rng, good)
    scene.update(zip(("hobby", "reason", "past"), hobby, strict=True))
    scene.update(zip(("other", "why", "did"), other, strict=True))
    scene.update(food=food, side=side, place=place, use=use)
    scene.update(who=rng.choice(world.FAMILY), day=rng.choice(templates.RECENTLY))
    request, answer = rng.choice(templates.PERSONAL)
    return one_of(request, rng).format_map(scene), prose([answer], scene)


def write(rng: Random, good: bool | None = None) -> Pair:
    """A prompt and an answer; ``good``: whether it ends well, by default at random."""
    good = rng.random() < 0.5 if good is None else good
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    if kind == "facts":
        return facts(rng)
    return {"story": story, "sentence": sentence, "personal": personal}[kind](rng, good)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints different prompts, one per line.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="Training used 0 and 1,000,000.")
    args = parser.parse_args()
    rng = Random(args.seed)
    prompts: dict[str, None] = {}
    while len(prompts) < args.count:
        prompts[write(rng)[0]] = None
    print("\n".join(prompts))


if __name__ == "__main__":
    main()
