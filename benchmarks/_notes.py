"""Notes as an assistant keeps them, each with a question that it answers, and questions that none
of them answers: a hundred about something else, and some about what notes like them are not about.

Written for `benchmarks/recall_relevance.py`, whose weights are fitted to the notes but not to the
unanswered questions, and for the tests of relevance. A note stands by itself, so
what answers looks different from what answers in a talk; half of the questions share no telling
word with their note. Notes that are alike differ in a name only, and so do their questions.
"""

__all__ = [
    "ALIKE",
    "NOTES",
    "REPLIES",
    "REQUESTS",
    "UNNAMED_QUESTIONS",
    "UNRELATED_QUESTIONS",
]


def _pairs(lines: str) -> tuple[tuple[str, str], ...]:
    split = (line.partition(" | ") for line in lines.strip().splitlines())
    return tuple((note.strip(), question.strip()) for note, _, question in split)


NOTES = _pairs("""
    I love hiking in the mountains | outdoor activities
    My sister Eva moves to Oslo in May | Where will Eva live?
    The door code of the office is 4711 | What is the door code?
    I am allergic to peanuts | Which food must I avoid?
    We use Postgres at work | What database does my employer run?
    The ramen bar by the river was the best meal of the trip | Which restaurant did I like?
    My dog is called Bruno | What is my dog's name?
    I take the 7:40 train to the office every morning | How do I commute?
    Our wedding anniversary is on 12 June | When did we marry?
    I prefer short answers without bullet points | How should replies be formatted?
    The car needs new brakes before winter | What has to be repaired on the vehicle?
    I play the cello in an amateur orchestra | Which instrument do I play?
    My daughter starts school in September | When does my daughter start school?
    I quit smoking two years ago | Do I still smoke cigarettes?
    The flat costs 1,450 euros a month | How much rent do we pay?
    I am learning Portuguese with an app | Which language am I studying?
    My manager is Dana Petrov | Who is my boss?
    The project deadline was moved to the end of March | When is the project due?
    I do not eat meat, but fish is fine | What is my diet like?
    My favourite author is Ursula Le Guin | Which writer do I like most?
    We adopted two kittens from the shelter | What pets do we have?
    I ran my first marathon in Hamburg | Where did I run the marathon?
    The tests run on GitHub Actions every night | What runs the nightly tests?
    Call the tax adviser Mr Ito about the refund | Who helps me with taxes?
    I was born in Valparaíso | What is my birthplace?
    My laptop is a ThinkPad with Fedora Linux | Which computer do I have?
    Grandma's recipe for apple cake needs no eggs | How does my grandmother bake her cake?
    I usually wake up at half past five | At what time do I get up?
    The blue suitcase has a broken wheel | Which piece of luggage is damaged?
    My brother Tom works as a nurse in Leeds | What is Tom's job?
    I want to learn how to sail this summer | What are my plans for the summer?
    We meet the neighbours for board games on Fridays | What do we do on Friday evenings?
    My shoe size is 43 | Which size of shoes do I wear?
    I got a promotion to team lead last week | How is my career going?
    The garden has too much shade for tomatoes | Why do vegetables not grow in our garden?
    I watch mostly Korean crime series | What do I like to watch?
    The staging server is staging.example.net | What is the address of the staging server?
    I broke my left arm while skiing | What injury did I have?
    My best friend Lena lives in Lisbon | Where does Lena live?
    I drink my coffee black | How do I take my coffee?
    The library books are due on 3 February | When must I return the books?
    I studied physics in Göttingen | What did I study?
    I am afraid of flying | Why do I avoid planes?
    We painted the bedroom light green | What colour is the bedroom?
    I donate to the lifeboat charity every Christmas | Which charity do I support?
    The bike was stolen in front of the station | What happened to my bicycle?
    I work four days a week, Wednesdays are free | On which day am I off work?
    My son builds robots in his spare time | What is my son's hobby?
    The insurance with Helvetia ends in August | When does the insurance end?
    I never want to see spoilers of films | What should you not tell me about movies?
    Our team writes Python and a little Rust | Which programming languages does the team use?
    I swim a kilometre twice a week | How often do I swim?
    We are saving for a house in the country | What are we putting money aside for?
    Mum's birthday present should be a telescope | What shall I give my mother?
    The meeting with the investors went badly | How was the investor meeting?
    I collect stamps from the Soviet Union | What do I collect?
    My blood pressure is a little high | Do I have any health issues?
    The heating is read on 9 December at 8 | When does somebody come for the heating?
    I lived in Nairobi from 2011 to 2014 | In which African city was my home?
    The password manager of the company is Bitwarden | Where are the passwords of the company kept?
""")
"""Pairs of a note and a question."""

ALIKE = _pairs("""
    The budget of project Falcon is 40,000 euros | What is the budget of project Falcon?
    The budget of project Heron is 65,000 euros | How much money does Heron have?
    The budget of project Osprey is 12,500 euros | What is the budget of Osprey?
    The budget of project Kestrel is 90,000 euros | How large is the Kestrel budget?
    Maria's birthday is on 3 March | When is Maria's birthday?
    Jonas has his birthday on 17 August | When was Jonas born?
    Birthday of Priya: 29 November | When do we celebrate Priya's birthday?
    Old Mr Baker turns 80 on 5 May | When is the birthday of Mr Baker?
    The API key of Stripe is in the vault under payments | Where is the Stripe key?
    The API key of Twilio is in the vault under messages | Where do I find the key for Twilio?
    The API key of Mapbox is with Dora | Who has the Mapbox key?
    The flight to Lisbon leaves at 7:15 from gate B4 | When does the flight to Lisbon leave?
    The flight to Athens leaves at 13:40 from gate A9 | At what time do we fly to Athens?
    The flight to Dublin leaves at 21:05 from gate C1 | Which gate is the Dublin flight at?
    Carla is the contact at Acme Corporation | Who is our contact at Acme?
    Our contact at Globex is Stefan | Whom do we call at Globex?
    For Initech, talk to Milton | Who handles Initech?
    Umbrella is looked after by Alice Wong | Who is the contact person of Umbrella?
    Peter eats no gluten | What can Peter not eat?
    Sofia is allergic to shellfish | Does Sofia have an allergy?
    Liam is a vegan | What is Liam's diet?
    Noor does not drink alcohol | What does Noor not drink?
    The server called Atlas runs Debian 12 | Which system runs on Atlas?
    The server called Hermes runs Ubuntu 24.04 | What operating system does Hermes have?
    The server called Apollo runs FreeBSD | What is installed on Apollo?
    Room 12 is booked for the design review | What is room 12 booked for?
    Room 14 is booked for interviews | Who uses room 14?
    Room 21 is being painted until Friday | What happens in room 21?
    Invoice 4410 was paid on Monday | Was invoice 4410 paid?
    Invoice 4411 is overdue | What is the state of invoice 4411?
    Invoice 4412 was sent to the wrong address | What went wrong with invoice 4412?
    The dentist of Emma is Dr Lind | Who is Emma's dentist?
    The dentist of Oscar is Dr Marsh | Which dentist does Oscar go to?
    Emma goes to school in Turku | Where does Emma go to school?
    Oscar goes to school in Vantaa | Which school does Oscar visit?
    The contract with Vodafone ends in June | When does the Vodafone contract end?
    The contract with Allianz ends in December | When can we leave Allianz?
    The contract with the gym ends in October | When does the contract with the gym end?
    Grandpa Willem served in the navy | What did Willem do?
    Grandma Ilse was a seamstress | What was Ilse's profession?
""")
"""Pairs in groups whose notes differ in what they are about."""

REPLIES = (
    "Got it, I'll keep that in mind.",
    "Thanks for telling me.",
    "Noted.",
    "Good to know! Is there anything else?",
    "Okay, I have made a note of that.",
    "Understood.",
    "That is great to hear! How can I help you with it?",
    "Thanks, I'll remember.",
    "Sure. What else can I do for you?",
    "All right.",
)
"""What an assistant says to a user who tells one of the notes,"""
REQUESTS = (
    "What did you find out?",
    "Anything I should know for today?",
    "Can you check that for me?",
    "And the other one?",
    "What do you have in your notes?",
    "Tell me what you know.",
    "Next, please.",
    "Remind me of what I should not forget.",
)
"""and what a user says before the assistant tells one."""

UNNAMED_QUESTIONS = tuple(
    line.strip()
    for line in """
    What is the budget of project Condor?
    How much money does Albatross have?
    When is Felix's birthday?
    When was Hannah born?
    Where is the Sendgrid key?
    Who has the key for Datadog?
    When does the flight to Zurich leave?
    Which gate is the Madrid flight at?
    Who is our contact at Hooli?
    Whom do we call at Wayne Enterprises?
    What can Greta not eat?
    Does Tobias have an allergy?
    Which system runs on Poseidon?
    What is installed on Artemis?
    What is room 33 booked for?
    Who uses room 17?
    Was invoice 4499 paid?
    What is the state of invoice 3872?
    Who is Lucy's dentist?
    Where does Henry go to school?
    When does the Telekom contract end?
    What did Grandpa Joris do?
    Where does Samuel live?
    What is Vera's job?
    What is the address of the Jenkins server?
    """.strip().splitlines()
)
"""Questions about something that the notes do not name, though they tell the same of others."""

UNRELATED_QUESTIONS = tuple(
    line.strip()
    for line in """
    What is the boiling point of tungsten?
    Who won the world chess championship in 1972?
    How many moons does Neptune have?
    What is the capital of Mongolia?
    Which enzyme unwinds the DNA double helix?
    Who painted the ceiling of the Sistine Chapel?
    How do I configure an ingress controller in Kubernetes?
    What does the HTTP status code 418 mean?
    Which treaty ended the Thirty Years' War?
    How deep is the Mariana Trench?
    What is the orbital period of Halley's comet?
    Who wrote the opera Nabucco?
    What is the chemical symbol of antimony?
    How does a differential gear work?
    Which dynasty ruled China before the Ming?
    What is the airspeed of a peregrine falcon in a dive?
    How is the Gini coefficient calculated?
    What is the difference between TCP and UDP?
    Who discovered the neutron?
    Which isotope is used for radiocarbon dating?
    What is the longest river in Siberia?
    How many chromosomes does a wheat plant have?
    What is the penalty for a false start in swimming?
    Which bridge collapsed at Tacoma in 1940?
    What is the half-life of plutonium-239?
    Who was the first secretary general of the United Nations?
    How do I rebase a branch onto upstream in git?
    What is the syntax of a left outer join in SQL?
    Which mineral is the hardest after diamond?
    How is parmesan made in Emilia-Romagna?
    What is the tax rate on capital gains in Estonia?
    Which parliament passed the Stamp Act?
    How many strings does a sitar have?
    What is the melting temperature of borosilicate glass?
    Who invented the stirling engine?
    What is the population of Vanuatu?
    Which satellite measures the salinity of the oceans?
    How does a transistor amplify a current?
    What is Gödel's second incompleteness theorem?
    Which emperor built the wall across northern Britain?
    What is the flash point of kerosene?
    How do bats echolocate?
    Which port does PostgreSQL listen on by default?
    What is the time complexity of heapsort?
    Who founded the Jesuit order?
    What is the thickness of the Antarctic ice sheet?
    Which protein carries oxygen in blood?
    What is the atomic number of hafnium?
    How many keys does a harpsichord have?
    Which company built the Saturn V second stage?
    What is my blood type?
    What is the number of my passport?
    Which dentist pulled my wisdom tooth?
    What is the licence plate of the delivery van?
    When does the elevator inspection expire?
    What is the serial number of the boiler?
    How much did the notary charge us?
    Which bank holds the mortgage?
    What is the password of the guest network?
    Who audits the annual accounts?
    What is the invoice number for the copper pipes?
    When is the next board meeting of the cooperative?
    Which supplier delivers the hydraulic pumps?
    What is the deductible of the liability insurance?
    Which lawyer drafted the lease?
    How many shares did the founders keep?
    What is the VAT number of the subsidiary?
    Which container holds the spare gaskets?
    When was the fire extinguisher last refilled?
    What torque do the cylinder head bolts need?
    Which gate does the ferry to Tallinn leave from?
    How many kilowatt hours did the heat pump use?
    What is the shoe size of the goalkeeper?
    Which allergy does the plumber have?
    What is the name of the surveyor?
    When does the parking permit end?
    Which firmware runs on the router?
    What is the combination of the safe in the basement?
    How high is the deposit on the storage unit?
    Which tyre pressure is right for the trailer?
    What did the radiologist say about the scan?
    Which visa is needed for Kazakhstan?
    When does the tenancy agreement terminate?
    What is the customs tariff on ceramic tiles?
    Which chlorine level is right for the pool?
    How many litres fit into the rainwater cistern?
    What is the airline's limit for hand luggage?
    Which clause covers force majeure?
    When did the patent on the valve lapse?
    What is the extension of the payroll department?
    Which species of beetle damages the beams?
    How long is the warranty on the compressor?
    What is the pH of the aquarium?
    Which constellation is used to find the pole star?
    How is the pension contribution split?
    What is the maximum load of the freight lift?
    Which regulator approves the turbine?
    What is the recipe for hollandaise without butter?
    Which notary keeps the will of the landlord?
    How many amperes does the welding machine draw?
    """.strip().splitlines()
)
