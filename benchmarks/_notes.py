"""Notes as an assistant keeps them, each with a question that it answers, and a hundred questions
that none of them answers.

Written for `benchmarks/recall_relevance.py`, whose weights are fitted to the notes but not to the
unrelated questions, and for the tests of relevance. A note stands by itself, so
what answers looks different from what answers in a talk; half of the questions share no telling
word with their note.
"""

__all__ = ["NOTES", "UNRELATED_QUESTIONS"]

NOTES = tuple(
    (note.strip(), question.strip())
    for note, _, question in (
        line.partition(" | ")
        for line in """
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
    """.strip().splitlines()
    )
)
"""Pairs of a note and a question."""

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
