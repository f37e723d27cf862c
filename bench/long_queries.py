"""Queries of 200 words: a request among talk, first, in the middle or last."""

from __future__ import annotations

import random
from collections.abc import Iterator

PLACES = ("first", "middle", "last")

TALK = (
    "Good morning, I hope that you had a quiet weekend and that the trains were on time for once.",
    "We spent most of yesterday in the room without windows, and nobody found the switch of the fan.",
    "My colleague Ana is on holiday until Thursday, so I am the one who answers everything this week.",
    "The coffee machine on the second floor is broken again, which explains the mood of the morning.",
    "Last month we promised the customer a first version, and the date has come nearer than we like.",
    "Nothing of this is urgent in the strict sense, but it would be nice to be done before the evening.",
    "I already told Peter about the background, and he thought that we should go on as before.",
    "It rained so hard on the way here that my notes are wet and half of them cannot be read.",
    "The plan for the quarter has four goals, and the third one is where we are late.",
    "Somebody asked in the meeting why we do it this way, and nobody had a short answer.",
    "In my last job we had a whole team for this, but here it is just the two of us.",
    "I am new to this project, so please bear with me when I get the words wrong.",
    "As far as I understand, the old system was switched off in spring, and hardly anybody noticed.",
    "The manager wants to hear about it on Friday, and she likes short sentences and few numbers.",
    "We tried two other ways before, and both of them worked until the third week.",
    "My daughter has a concert tonight, so I have to leave a little earlier than usual.",
    "There was some confusion about who owns this part, but that has been settled since Tuesday.",
    "Please do not worry about style, the result only has to be good enough for the two of us.",
    "The office will be painted next week, and everything smells of it already.",
    "I read somewhere that people do their best work before lunch, which would be bad news today.",
    "The budget for this year is spent, so we have to make do with what is there.",
    "Our partner in Lisbon has done the same thing, and they were quite happy with how it went.",
    "Yesterday evening I thought that it was finished, and then the phone rang.",
    "The last person who understood all of this has moved to the coast and grows tomatoes.",
    "We had a long discussion about names, and in the end the shortest one won.",
    "Sorry for the long text, I usually write less, but I wanted you to have the whole story.",
    "It is the first time that we do this together, so I am curious how it goes.",
    "The neighbours are moving house, and there is a piano on the stairs since eight.",
    "I have slept badly, so forgive me if I say the same thing twice.",
    "At the review somebody said that quality comes from patience, and everybody looked at the clock.",
    "The team is spread over three countries, and it is always too early for one of us.",
    "We will talk about the rest when you are done, there is no need to think of it now.",
    "My first idea was too complicated, and my second one was too simple.",
    "Half of the people in the project have changed since it began, and the goals have changed twice.",
    "The lunch place around the corner has closed, and we still have not found another one.",
    "Whatever you do, the two of us will look at it together before anybody else sees it.",
    "The auditors were here in June, and they were friendly, thorough and a little bored.",
    "I have learned more in these three weeks than in the whole year before.",
    "There is an older document about this, but most of it describes how things used to be.",
    "Thanks to your work of last week the numbers look much better than they did in autumn.",
    "In the end it was only a cable, but it took the whole afternoon until somebody saw it.",
    "My predecessor left a drawer full of pens, none of which writes.",
    "We are eleven people now, and two more start after the summer.",
    "The heating is on although it is warm outside, so all the doors are open.",
    "He said that it was easy, and then he was not seen for the rest of the day.",
    "Nobody expects a miracle here, a small step in the right direction is enough.",
    "It has been a strange year for all of us, and I am glad that it gets calmer.",
    "The deadline was moved twice, and I would be surprised if it did not move again.",
    "When we began with this, we had no idea how many exceptions there would be.",
    "I will be on the train from four o'clock and cannot be reached until seven.",
    "Two of the interns asked good questions, and we did not know the answers either.",
    "The customer is kind, but they change their minds as often as the weather.",
    "I like to work with music, but here everybody else likes silence.",
    "What we agreed on in spring still holds, only the order has changed.",
    "You know how it is: the last tenth takes as long as everything before.",
)
"""What people say around a request: everyday matters and the life of a project."""


def long_form(query: str, place: str, words: int, rng: random.Random) -> str:
    """A query of about so many words, with the request at one place of the talk."""
    talk = list(_talk(words - len(query.split()), rng))
    at = {"first": 0, "middle": len(talk) // 2, "last": len(talk)}[place]
    request = query if query.rstrip().endswith((".", "?", "!")) else f"{query.rstrip()}."
    return " ".join([*talk[:at], request, *talk[at:]])


def _talk(words: int, rng: random.Random) -> Iterator[str]:
    for sentence in rng.sample(TALK, k=len(TALK)):
        if words <= 0:
            return
        words -= len(sentence.split())
        yield sentence
