"""Statements of which one replaces another, or only looks like it; made up for this project.

Six people tell ten pairs each, three of them as notes and three in chats with an assistant, among
things that have nothing to do with them. Every second pair was held back while the rules of
`orbiter.memory.recall` were written: `half` 2 judges what was made on `half` 1.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata

START = datetime(2025, 1, 6, 9, 0, tzinfo=UTC)
ASKED_AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Pair(NamedTuple):
    """Two statements of one person, a question about now and perhaps one about the past."""

    kind: str
    older: str
    newer: str
    question: str
    past: str = ""
    is_replaced: bool = True


def _alike(older: str, newer: str, question: str) -> Pair:
    return Pair("look alike", older, newer, question, is_replaced=False)


PEOPLE: dict[str, list[Pair]] = {
    "ann": [
        Pair("move", "I live in Oslo", "I moved to Paris last month, I no longer live in Oslo",
             "Where do I live now?", "Where did I live before?"),
        Pair("job", "I work as a nurse at the children's hospital",
             "I quit the hospital, I am a teacher at a primary school now",
             "What is my job?", "Where did I work before I became a teacher?"),
        _alike("My sister lives in Madrid with her two kids",
               "My cousin moved to Seville in spring", "Where does my sister live?"),
        Pair("diet", "I eat meat nearly every day",
             "I don't eat meat any more, I became vegetarian",
             "Do I eat meat?"),
        Pair("price", "The gym costs 30 euros a month",
             "The gym has raised its price to 45 euros a month", "How much does the gym cost?"),
        _alike("Milk costs 1.20 at the corner shop", "Bread now costs 3.50 at the corner shop",
               "How much is milk at the corner shop?"),
        Pair("name", "Our team is called Blue Herons", "Our team has been renamed to Night Owls",
             "What is our team called now?", "What was our team called in January 2025?"),
        Pair("plan", "I am flying to Rome with Ben on 3 April",
             "The trip to Rome with Ben is cancelled, he broke his leg",
             "Am I going to Rome with Ben?"),
        _alike("I have a dentist appointment on Thursday the 5th of March",
               "The parents' evening on Thursday was cancelled",
               "When is my dentist appointment?"),
        Pair("plan", "Book club meets at Dana's place on Friday",
             "Book club will be at Igor's place instead of Dana's on Friday",
             "Where does book club meet on Friday?"),
    ],
    "bo": [
        Pair("move", "My office is on the third floor of the Harbour building",
             "We have moved into the new office on Mill Street, the Harbour building is history",
             "Where is my office?", "Where was my office before?"),
        Pair("job", "I'm an accountant at Lindner & Sons",
             "Since June I work for a start-up called Fernway; I left Lindner & Sons",
             "Who do I work for currently?"),
        _alike("I speak Spanish with my grandmother", "I have also started to learn Portuguese now",
               "Which language do I speak with my grandmother?"),
        Pair("diet", "I drink three cups of coffee in the morning",
             "I switched from coffee to green tea in the morning",
             "What do I drink in the morning these days?",
             "What did I drink in the morning before?"),
        Pair("price", "My rent is 820 a month", "My rent went up, I now pay 910 a month",
             "How high is my rent?", "How high was my rent a year ago?"),
        _alike("My cat is called Minka", "We renamed the boat, it is called Seagull now",
               "What is my cat called?"),
        Pair("name", "My girlfriend's name is Petra Novak",
             "Petra and I got married, her name is Petra Olsen now", "What is Petra's last name?"),
        Pair("plan", "The garden party is on Saturday the 14th of March",
             "The garden party has been postponed to Sunday the 22nd of March",
             "When is the garden party?"),
        _alike("I drive a red Skoda to work", "I thought about switching to a bike for work",
               "What do I drive to work?"),
        Pair("plan", "I signed up for the pottery course on Tuesdays",
             "I dropped the pottery course, it did not suit me",
             "Do I still do the pottery course?"),
    ],
    "cleo": [
        Pair("move", "We live in a small flat in Graz",
             "We relocated to Linz in November, to a house with a garden",
             "Which city do we live in at the moment?", "Which city did we live in before?"),
        Pair("job", "I am studying biology at the university",
             "I gave up studying biology and started an apprenticeship as a carpenter",
             "What am I studying?"),
        _alike("My favourite restaurant is the Thai place on Elm Road",
               "The bakery on Elm Road has changed its opening hours",
               "What is my favourite restaurant on Elm Road?"),
        Pair("diet", "I'm on a keto diet", "I stopped the keto diet, it made me tired",
             "Which diet am I on?"),
        Pair("price", "Our internet plan costs 25 euros with Telnet",
             "We changed to Brightline, our internet costs 19 euros now",
             "What do we pay for the internet?"),
        _alike("I take the 8:15 train to the office", "I will move my desk in the office next week",
               "Which train do I take to the office?"),
        Pair("name", "The project has the working title Firefly",
             "The project is no longer Firefly, from now on it is Lantern",
             "What is the project's title?", "What was the project's title at first?"),
        Pair("plan", "My parents visit us over Easter",
             "My parents are not coming over Easter any more, my father has to work",
             "Who visits us over Easter?"),
        _alike("I have two brothers, Jan and Piet",
               "Jan has a new girlfriend now, she is from Peru",
               "How many brothers do I have?"),
        Pair("name", "The wifi password is tulip-garden-7",
             "I changed the wifi password, it is walnut-bridge-3", "What is the wifi password?"),
    ],
    "dirk": [
        Pair("move", "My daughter Lea lives in Hamburg",
             "Lea has moved to Munich for her new job", "Where does my daughter Lea live?",
             "Where did Lea live in February 2025?"),
        Pair("job", "My manager is Frau Winter",
             "Frau Winter has left, my new manager is Tom Adler",
             "Who is my manager?", "Who was my manager before?"),
        _alike("I work on the payroll system", "I worked in the garden all day, now my back hurts",
               "Which system do I work on?"),
        Pair("diet", "I am allergic to nothing as far as I know",
             "The doctor found out that I am allergic to nuts now", "What am I allergic to?"),
        Pair("price", "The Netherford shares stand at 41 euros",
             "The Netherford shares have dropped to 33 euros",
             "Where do the Netherford shares stand?"),
        _alike("I am reading a book about the Silk Road",
               "I bought another book about the Vikings", "What am I reading about?"),
        Pair("name", "Our dog is called Bello",
             "The kids changed the dog's name, it is Captain now", "What is our dog's name?"),
        Pair("plan", "The meeting with the architect is on Monday at 10",
             "The architect rescheduled, the meeting is on Wednesday at 2",
             "When is the meeting with the architect?"),
        _alike("I want to go to Iceland in June",
               "The trip to Denmark with the choir fell through", "Where do I want to go in June?"),
        Pair("name", "I use Notepad for my shopping lists",
             "I switched to Keepsake for my shopping lists",
             "What do I use for my shopping lists?",
             "What did I use for my shopping lists before?"),
    ],
    "elif": [
        Pair("move", "I keep my bike in the cellar",
             "My bike is in the garage now, the cellar was too damp",
             "Where is my bike?", "Where was my bike in March 2025?"),
        Pair("job", "I teach yoga on Mondays and Wednesdays",
             "I no longer teach yoga, my knee does not allow it", "Do I teach yoga?"),
        _alike("I live with my partner Deniz", "Deniz moved the sofa to the other wall",
               "Who do I live with?"),
        Pair("diet", "I take magnesium before I go to sleep",
             "I take iron instead of magnesium before I go to sleep",
             "What do I take before I go to sleep?"),
        Pair("price", "A haircut at Salon Rosa is 40 francs",
             "A haircut at Salon Rosa is 48 francs now", "What does a haircut at Salon Rosa cost?"),
        _alike("The blue folder has my tax papers", "I still keep my tax papers in the blue folder",
               "Where are my tax papers?"),
        Pair("name", "My phone number is 0171 555 201",
             "I have a new phone number, it is 0160 555 774",
             "What is my phone number?", "What was my old phone number?"),
        Pair("plan", "I'm going to run the marathon in October",
             "I pulled out of the marathon because of my knee", "Am I running the marathon?"),
        _alike("My piano lesson is on Tuesday at five",
               "My son's football training was moved to Tuesday at six",
               "When is my piano lesson?"),
        Pair("price", "I pay 12 a month for the music streaming",
             "I cancelled the music streaming, I listen to the radio",
             "How much do I pay for music streaming?"),
    ],
    "finn": [
        _alike("I live in Ghent, near the station",
               "Maybe I will move to Lyon next year, if I find a job there", "Where do I live?"),
        Pair("job", "I am the treasurer of the chess club",
             "I handed over as treasurer, I am the president of the chess club now",
             "What am I in the chess club?", "What was I in the chess club before?"),
        _alike("I play the cello in an orchestra",
               "I sold my old guitar, I never played it any more", "Which instrument do I play?"),
        Pair("diet", "I put sugar into my tea", "I use honey in my tea now, not sugar any more",
             "What do I put into my tea?"),
        Pair("price", "The bus ticket costs 2.80",
             "Since January the bus ticket costs 3.20", "What does the bus ticket cost?",
             "What did the bus ticket cost before?"),
        _alike("I like the mountains best for holidays",
               "We are at the sea now and it rains all day",
               "What do I like best for holidays?"),
        Pair("name", "Our band plays under the name Velvet Spoon",
             "The band has a new name, we are Paper Lions now", "What is the name of our band?"),
        Pair("plan", "Grandma's birthday dinner is at the Golden Goose",
             "The Golden Goose has closed, grandma's birthday dinner is at our house now",
             "Where is grandma's birthday dinner?"),
        _alike("I have the spare key of the Millers",
               "I gave the drill back to the Wagners, they had lent it to me",
               "Whose spare key do I have?"),
        _alike("I go swimming every Sunday morning",
               "I now also play badminton every Friday evening",
               "What do I do every Sunday morning?"),
    ],
}  # fmt: skip

_TOLD_AS_NOTES = ("ann", "cleo", "elif")

AROUND = (
    "It rained all weekend and we stayed in", "I watched a documentary about whales",
    "The neighbours have a very loud lawn mower", "My back hurts a bit after the long drive",
    "I found a nice recipe for lentil soup", "The lamp in the hallway flickers again",
    "I switched the heating off because it was warm", "Now the tomatoes are finally ripe",
    "My uncle told the story of the lost canoe again", "I had to wait an hour at the town hall",
    "The museum was closed, so we walked along the river", "I lost one of my gloves on the tram",
    "We moved the table so that the light is better", "Somebody left an umbrella at our door",
    "I need to return the drill by the end of the week", "The cake turned out too sweet",
    "I slept badly because of the full moon", "My favourite mug broke this morning",
    "The new series about the lighthouse is quite good", "I bought stamps and a box of envelopes",
    "The kids built a hut out of blankets", "I forgot the anniversary of my parents",
    "There was a power cut in the whole street", "The mechanic says the brakes are fine",
    "I planted basil and parsley on the balcony", "We played cards until midnight",
    "The printer does not find the network", "I cleaned the windows, all of them",
    "There is a new ice cream shop by the bridge", "I do not understand the letter from the bank",
    "The snow melted within a day", "I am looking for a present for my colleague",
    "The lecture about volcanoes was fascinating", "I have to renew my passport this year",
    "We saw a fox in the park", "The radio played that old song from school",
    "I used to be afraid of dogs as a child", "The elevator is out of order again",
    "I ordered a new pair of reading glasses", "The soup needs more salt",
    "My friend Rita sent a postcard from Crete", "I finished the puzzle with a thousand pieces",
    "The train was late by forty minutes", "I changed a light bulb in the kitchen",
    "The pharmacy was already closed", "I wrote a long letter to my aunt",
    "There was a long queue at the post office", "I repaired the zip of my jacket",
    "We counted eleven swans on the lake", "I spilled tea over the keyboard",
)  # fmt: skip
REPLIES = (
    "Thanks for telling me.", "I see! Anything else?", "Good to know.", "I'll keep that in mind.",
    "That sounds interesting, tell me more when you like.",
)  # fmt: skip


def pairs(half: int = 0) -> Iterator[tuple[str, Pair]]:
    """Return the pairs with who tells them: all, or every second one (*half* 1 or 2)."""
    count = {True: 0, False: 0}
    for user, told in PEOPLE.items():
        for pair in told:
            count[pair.is_replaced] += 1
            if not half or count[pair.is_replaced] % 2 == half % 2:
                yield user, pair


def memories(user: str) -> list[MemoryItem]:
    """Return all that a person has told, oldest first: first the older ones, months later the
    newer, with other things before, between and after them."""
    told = PEOPLE[user]
    third = len(AROUND) // 3
    texts = [
        *_mixed([pair.older for pair in told], AROUND[:third]),
        *AROUND[third : 2 * third],
        *_mixed([pair.newer for pair in told], AROUND[2 * third :]),
    ]
    items: list[MemoryItem] = []
    for number, text in enumerate(texts):
        at = START + timedelta(days=5 * number, hours=number % 7)
        if user in _TOLD_AS_NOTES:
            items.append(MemoryItem(content=text, metadata=_whose(user), created_at=at))
            continue
        of_chat = _whose(user, session=f"chat {number // 6}")
        reply = REPLIES[number % len(REPLIES)]
        after = at + timedelta(seconds=20)
        items.append(HumanMemory(content=text, metadata=of_chat, created_at=at))
        items.append(AIMemory(content=reply, metadata=of_chat, created_at=after))
    return items


def _whose(user: str, session: str | None = None) -> MemoryMetadata:
    return MemoryMetadata(user_id=user, session_id=session)


def _mixed(some: list[str], others: tuple[str, ...]) -> list[str]:
    """Return all of both, one of *others* or two after each of *some*."""
    step = len(others) / len(some)
    mixed: list[str] = []
    for number, text in enumerate(some):
        mixed += [text, *others[round(number * step) : round((number + 1) * step)]]
    return mixed
