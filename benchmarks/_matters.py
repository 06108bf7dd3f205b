"""Long matters that are told over many messages of a chat; made up for this project.

Each matter has an order question and a summary question; what answers them are all of its
messages. They are told in turns with the other matters and with other things. The second half was
held back while the rules of `orbiter.memory.recall` were written.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata

SCOPE = MemoryMetadata(user_id="gail")
START = datetime(2025, 2, 3, 8, 0, tzinfo=UTC)


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


class Matter(NamedTuple):
    """Something that went on for months, and two questions about all of it."""

    name: str
    about: str
    """What the assistant calls it, in every answer."""
    order: str
    summary: str
    told: tuple[str, ...]
    """The messages that answer both questions."""
    detail: tuple[str, ...]
    """Messages about one detail, all at once: a peak that the answer should not be made of."""


MATTERS = (
    Matter(
        "kitchen",
        "kitchen renovation",
        "Can you list the order in which I brought up the different steps of my kitchen "
        "renovation? Mention only ten items.",
        "Can you summarise how the renovation of my kitchen developed?",
        (
            "We finally decided to renovate the kitchen, it has not been touched since 1987",
            "I drew a first plan for the kitchen with an island in the middle",
            "The kitchen studio made an offer of 18,400, far more than we wanted to spend",
            "We took the old cabinets out ourselves and gave them to a neighbour",
            "The electrician found out that all the wiring behind the kitchen wall is rotten",
            "No island after all, the gas pipe runs right through the middle of the kitchen floor",
            "The tiles arrived and a third of them were broken",
            "The plumber moved the sink under the window, it took him two days",
            "We have cooked on a camping stove in the hall for five weeks of renovation now",
            "The new cabinets are in, one door hangs crooked",
            "The worktop of oak was delivered and oiled on the same day",
            "We cooked the first meal in the finished kitchen, risotto for eight people",
        ),
        (
            "Which handles suit the kitchen cabinets better, brass or steel?",
            "Would black handles in the kitchen look too dark with the oak?",
            "How many handles does a kitchen with nineteen cabinets need?",
            "Are handles of brass hard to keep clean in a kitchen?",
            "My sister says that a kitchen without handles is more modern",
            "We take the brass handles for the kitchen, decided",
        ),
    ),
    Matter(
        "thesis",
        "thesis on bacteria in rivers",
        "List in chronological order how my thesis on river bacteria came about.",
        "Walk me through the story of my thesis on bacteria in rivers.",
        (
            "My professor suggested a thesis on bacteria in rivers, and I said yes",
            "I read forty papers on river bacteria and felt more stupid than before",
            "I took the first water samples at the weir, in the snow",
            "The freezer in the lab broke down and half of my samples thawed",
            "I repeated the sampling at all nine places along the river",
            "The sequencing company needs six weeks for my samples",
            "The first data came back, there are antibiotic resistant strains below the hospital",
            "My professor wants the statistics done anew with a mixed model",
            "I wrote the methods chapter of the thesis in one long night",
            "A reviewer in the group says that my conclusion goes too far",
            "I handed in the thesis, printed and bound, with four copies",
            "I defended the thesis on river bacteria and got a 1.3",
        ),
        (
            "Should the title of my thesis name the river or only the bacteria?",
            "Is a thesis title with a colon old-fashioned?",
            "How long may the title of a thesis on bacteria be?",
            "Can I put the word resistome into the title of my thesis?",
            "My flatmate says that the title of my thesis sounds like a crime novel",
            "The title of the thesis stays as it was, bacteria and all",
        ),
    ),
    Matter(
        "puppy",
        "puppy Nelly",
        "What came first and what came later with the puppy Nelly? Walk me through it in order.",
        "Give me an overview of how things went with our puppy Nelly.",
        (
            "We visited the breeder and fell in love with a small brown puppy",
            "We will call the puppy Nelly, after my grandmother",
            "Nelly came home with us and cried through the first night",
            "The vet gave Nelly her vaccinations, she did not even notice",
            "Nelly chewed up the left shoe of my wedding pair",
            "Puppy school has begun, Nelly sits when she is told to, sometimes",
            "Nelly ate a whole bar of chocolate and we drove to the animal clinic at night",
            "The blood values of Nelly are normal again, what a relief",
            "Nelly swam for the first time and did not want to come out of the lake",
            "She growled at the postman, so we booked lessons with a dog trainer",
            "After six lessons with the trainer Nelly lets the postman pass",
            "Nelly passed her companion dog test, the best of eleven dogs",
        ),
        (
            "Which food is best for Nelly, dry or wet?",
            "How many times a day does a puppy like Nelly need food?",
            "Is grain in the food bad for Nelly?",
            "Nelly leaves half of her food in the bowl, is that normal for a puppy?",
            "The shop had a puppy food with salmon, Nelly sniffed at it and walked away",
            "Nelly gets the dry food with lamb from now on",
        ),
    ),
    Matter(
        "bakery",
        "bakery",
        "In what order did the things around opening my bakery happen?",
        "Please recap how the opening of my bakery has developed from start to finish.",
        (
            "I want to open a bakery of my own, I have dreamt of it for years",
            "The bank wants to see a business plan before it talks about a loan",
            "I found a shop in Castle Lane that used to be a shoemaker's",
            "The bank agreed to a loan of 60,000 for the bakery",
            "The chamber of crafts wants a proof of my master's certificate",
            "I bought a used deck oven from a baker who retires",
            "The oven does not fit through the door, a window had to be taken out",
            "The health inspector complained about the missing second wash basin",
            "I hired Samira, she makes the best croissants in town",
            "We baked on trial for the whole street, two hundred rolls",
            "The bakery opened, the queue went round the corner",
            "The first month of the bakery ended with a small profit of 412 euros",
        ),
        (
            "What could I call my bakery, something with flour?",
            "Is Golden Crust too common a name for a bakery?",
            "Do I have to register the name of the bakery?",
            "My aunt wants me to name the bakery after her",
            "Would a bakery with a French name scare people off?",
            "The bakery will be called Morning Lane, after all",
        ),
    ),
    Matter(
        "knee",
        "knee injury",
        "List the events around my knee injury in chronological order.",
        "How did my knee injury and its treatment evolve over time?",
        (
            "I twisted my knee on the last run of the ski trip",
            "The doctor in the valley put a splint on the knee and sent me home",
            "The MRI shows that the cruciate ligament is torn",
            "I got a second opinion, the surgeon at the university clinic advises an operation",
            "The operation on the knee went well, they took a tendon from the thigh",
            "I am on crutches for six weeks and cannot carry my own coffee",
            "Physiotherapy began today, I can bend it to sixty degrees",
            "The knee is swollen again, I overdid the cycling on the home trainer",
            "They drew fluid from the joint, it was not an infection",
            "I walked down the stairs without crutches for the first time",
            "The physiotherapist let me jog on the treadmill for four minutes",
            "A year after the ski trip the surgeon says the knee is as good as new",
        ),
        (
            "Which brace is best for a knee like mine, soft or rigid?",
            "Does the health insurance pay for the knee brace?",
            "The knee brace slips down when I walk, what can I do?",
            "May I sleep with the knee brace on?",
            "The knee brace squeaks, everybody in the office turns around",
            "I have got used to the knee brace by now",
        ),
    ),
    Matter(
        "festival",
        "street festival",
        "Can you list in order the aspects of organising the street festival that I mentioned "
        "throughout our conversations?",
        "Bring me up to date on everything about the street festival, from the beginning.",
        (
            "The neighbours want a street festival for the hundred years of our street",
            "I was elected head of the festival committee because nobody else raised a hand",
            "The city needs an application for closing the street twelve weeks ahead",
            "Our application was refused because of the bus line",
            "The bus company agreed to a detour, and the city gave its permission",
            "The brass band from the fire station will play for free beer",
            "We found three sponsors, the savings bank gives the most",
            "The insurance for the festival costs 380, more than the stage",
            "The stage we had booked was given to somebody else by mistake",
            "A farmer lends us his trailer as a stage",
            "The street festival took place in pouring rain and everybody danced",
            "The festival made 1,900, which go to the kindergarten",
        ),
        (
            "What should the poster of the street festival look like?",
            "Is yellow a good colour for a poster of a street festival?",
            "How many posters does a street festival of our size need?",
            "My nephew drew a poster for the street festival with a dancing lamp post",
            "Should the sponsors be on the poster of the street festival?",
            "The posters of the street festival are printed, 150 of them",
        ),
    ),
)


def matters(half: int = 0) -> tuple[Matter, ...]:
    """Return all matters, or every second one (*half* 1 or 2)."""
    return tuple(each for at, each in enumerate(MATTERS) if not half or at % 2 == half - 1)


def chat() -> list[MemoryItem]:
    """Return a chat in which all matters are told in turns, with answers and other things."""
    longest = max(len(matter.told) for matter in MATTERS)
    texts: dict[str, str] = {}
    for part in range(longest):
        for number, matter in enumerate(MATTERS):
            said = [matter.told[part], *(matter.detail if part == longest // 2 else ())]
            texts |= {text: _ANSWER.format(matter.about) for text in said}
            place = part * len(MATTERS) + number
            texts.setdefault(AROUND[place % len(AROUND)], REPLIES[place % len(REPLIES)])
    items: list[MemoryItem] = []
    for number, (text, reply) in enumerate(texts.items()):
        at = START + timedelta(days=2 * number, hours=number % 5)
        of_chat = MemoryMetadata(user_id=SCOPE.user_id, session_id=f"chat {number // 10}")
        after = at + timedelta(seconds=30)
        items.append(HumanMemory(content=text, metadata=of_chat, created_at=at))
        items.append(AIMemory(content=reply, metadata=of_chat, created_at=after))
    return items


_ANSWER = (
    "Thanks for the update on the {0}. With a {0} it helps to write down what was decided, what is "
    "still open and who takes care of it. Tell me how the {0} goes on."
)
