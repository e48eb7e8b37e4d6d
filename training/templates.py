"""Sentences of the generated training texts (``training/stories.py``), one text per line.

``/`` separates alternatives. ``{a_x}`` is ``{x}`` with its article. Words in braces are drawn from
``training/world.py``.
"""

from __future__ import annotations

from training.world import rows

FACTS = {
    "animals": """
        {a_name} is an animal that lives {place}. / {a_name} is an animal.
        it lives {place} and eats {food}. / it eats {food}. / it likes {food}.
        it can {skill}. / {a_name} can {skill}.""",
    "things": """
        {a_name} is {what}.
        people use it to {use}. / you need it to {use}. / it helps us to {use}.
        I have {a_color} {name} at home. / every house has {a_name}.""",
    "places": """
        {a_name} is {what}.
        people go there to {use}. / there you can {use}.
        I often go to the {name}. / the {name} is quiet in the evening.""",
    "jobs": """
        {a_name} is a person who {does}.
        {a_name} knows much about {knows}.
        it is hard work. / many people need this work. / the work begins early.""",
    "foods": """
        {name} is food that is made from {of}.
        people eat it with {side}. / it is good with {side}.
        children love {name}. / I like {name} very much. / it tastes good.""",
    "plants": """
        {general} is a {kind} that grows {place}.
        it has {has}.
        it needs water and light. / it is green in summer. / it grows slowly.""",
    "nature": """
        {general} is {what}.
        it {does}.
        we see it often.""",
}
"""By table: three lines of alternatives, the definition first."""

OPENINGS = """
once upon a time there was {first} who lived {home}.
{first} lived {home}.
there was {first} who lived {home}.
long ago, {first} lived {home}.
"""
"""How a story about somebody without a name begins."""

NAMED_OPENINGS = """
{hero} lived {home}.
once there was a {child} named {hero}.
{hero} was a kind {child} who lived {home}.
"""

HAPPY_EVENTS = rows("""
thing : {he} found {a_item} in the {place}. {he} took the {thing} home and was very {feeling}.
thing : {friend} gave {him} {a_item}. {he} thanked {friend} for the {thing}.
animal : {he} met {a_animal} in the {place}. {he} and the {animal} became good friends.
place : {he} walked to the {place}. the sun was shining and {he} felt {feeling}.
food : {he} was hungry and looked for {food}. in the {place} {he} found enough to eat.
animal : {a_animal} was lost in the {place}. {he} helped the {animal} to find the way home.
thing : {he} lost {his} {thing} in the {place}. after a long time {he} found the {thing} again.
friend : {friend} came to visit {him}. they ate and laughed all evening.
""")
"""What the text is about, and what happens."""

SAD_EVENTS = rows("""
thing : {he} lost {his} {item} in the {place}. {he} looked everywhere, but the {thing} was gone.
thing : {he} dropped the {thing} and it broke. {he} was very {feeling}.
animal : {he} met {a_animal} in the {place}. {he} was afraid of the {animal} and ran away.
place : {he} walked to the {place}. it was dark and cold there, and {he} felt {feeling}.
food : {he} was hungry and looked for {food}. there was nothing to eat in the house.
storm : a terrible storm came to the {place}. {he} was {feeling} and could not sleep.
thing : somebody took {his} {thing}. {he} was {feeling} for many days.
friend : {friend} did not come to visit {him}. {he} sat alone in the {place}.
""")

DAYS = ("one day", "one morning", "in the evening", "one cold night", "in spring")

HAPPY_ENDINGS = """
{hero} was {mood} and slept well that night.
it was a wonderful day.
from that day on, {hero} was never alone.
{hero} smiled and went home.
and they lived happily for many years.
"""

SAD_ENDINGS = """
{hero} went home and cried.
it was a terrible day.
{hero} never came back.
{hero} was {mood} and alone.
nobody came to help.
"""

SENTENCES = rows("""
animal : the {size} {animal} lives {home}.
animal : the {color} {animal} eats {diet} every day.
diet : the {color} {animal} eats {diet} every day.
animal : the {animal} was {feeling} because it {fortune} food.
place : the {place} is {a_quality} place in summer.
place : the {place} is {a_quality} place in winter.
place : {a_size} {animal} came to the {place} and looked for {diet}.
thing : {friend} has {a_quality} {color} {thing}.
thing : the {color} {thing} is in the {place}.
food : {friend} eats {food} and is {feeling}.
food : the {food} is {quality} today.
place : {friend} was {feeling} in the {place}.
thing : {friend} {likes} the {thing}.
""")
"""What the sentence is about, and the sentence."""

PERSONAL = rows("""
Why do you like {hobby}? / Explain why {hobby} is good. : I like {hobby} because {reason}. {day} I {past} with {who}. I felt {feeling}.
What food do you like? / Describe a meal. / Do you like {food}? : I like {food} best. I eat it with {side}. {who} makes it for me.
Tell me about your day. / What did you do? / Write about a day. : {day} I went to the {place} with {who}. I {past}. it was {a_quality} day and I was {feeling}.
What are your hobbies? / Tell me what you like. : I like {hobby} because {reason}. I also like {other} because {why}.
Make a list of three things. / List three things you did. : first, I {past}. then I {did}. in the evening I ate {food} with {who}.
Do you like the {place}? / Why do you go to the {place}? : I go to the {place} to {use}. the {place} is {quality} and I feel {feeling} there.
""")  # noqa: E501 - one text per line
"""Requests for something personal, and answers in the first person."""

RECENTLY = ("today", "yesterday", "last week", "on Sunday", "this morning")
