"""The times of questions in other languages than English."""

from datetime import UTC, datetime, timedelta

from tests.rows import each_row

from orbiter.memory.recall._date_phrases import spans
from orbiter.memory.recall._dates import Span
from orbiter.memory.recall._foreign_times import in_english
from orbiter.memory.recall._query_analysis import read

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)
LAST_WEEK = Span(
    start=NOW - timedelta(days=14),
    end=NOW,
    core=(datetime(2024, 6, 3, tzinfo=UTC), datetime(2024, 6, 10, tzinfo=UTC)),
)
SINCE_MAY = Span(start=datetime(2024, 5, 1, tzinfo=UTC), end=NOW)
MARCH_TO_MAY = Span(start=datetime(2023, 3, 1, tzinfo=UTC), end=datetime(2023, 6, 1, tzinfo=UTC))
WINTER = Span(start=datetime(2023, 12, 1, tzinfo=UTC), end=datetime(2024, 3, 1, tzinfo=UTC))
LAST_WEEKEND = Span(
    start=datetime(2024, 6, 7, tzinfo=UTC),
    end=NOW,
    core=(datetime(2024, 6, 8, tzinfo=UTC), datetime(2024, 6, 10, tzinfo=UTC)),
)
TWO_WEEKS_AGO = Span(start=NOW - timedelta(days=17.5), end=NOW - timedelta(days=10.5))


@each_row(
    ("text", "expected"),
    [
        ("Was habe ich am 3. Mai 2023 gemacht?", Span(2023, 5, 3)),
        ("Was war bei uns am dritten Mai?", Span(None, 5, 3)),
        ("Was haben wir im Mai gemacht?", Span(None, 5)),
        ("Was haben wir letzte Woche gemacht?", LAST_WEEK),
        ("Was habe ich vor zwei Wochen gekauft?", TWO_WEEKS_AGO),
        ("Wo war ich im letzten Monat?", Span(2024, 5)),
        ("Wo waren wir 2021 im Urlaub?", Span(2021)),
        ("Was habe ich am 08.05.2023 gemacht?", Span(2023, 5, 8)),
        ("Qu'est-ce que j'ai fait le 3 mai 2023 ?", Span(2023, 5, 3)),
        ("Qu'avons-nous fait la semaine dernière ?", LAST_WEEK),
        ("Qu'est-ce que j'ai acheté il y a deux semaines ?", TWO_WEEKS_AGO),
        ("Où étions-nous en août ?", Span(None, 8)),
        ("¿Qué hice el 3 de mayo de 2023?", Span(2023, 5, 3)),
        ("¿Qué hicimos la semana pasada?", LAST_WEEK),
        ("¿Qué compré hace dos semanas?", TWO_WEEKS_AGO),
        ("Che cosa ho fatto il 3 maggio 2023?", Span(2023, 5, 3)),
        ("Che cosa abbiamo fatto la settimana scorsa?", LAST_WEEK),
        ("Che cosa ho comprato due settimane fa?", TWO_WEEKS_AGO),
        ("O que eu fiz em 3 de maio de 2023?", Span(2023, 5, 3)),
        ("O que nós fizemos na semana passada?", LAST_WEEK),
        ("O que eu comprei há duas semanas?", TWO_WEEKS_AGO),
        ("Wat heb ik op 3 mei 2023 gedaan?", Span(2023, 5, 3)),
        ("Wat hebben we vorige week gedaan?", LAST_WEEK),
        ("Wat heb ik twee weken geleden gekocht?", TWO_WEEKS_AGO),
        ("Что я делал 3 мая 2023 года?", Span(2023, 5, 3)),
        ("Что мы делали на прошлой неделе?", LAST_WEEK),
        ("Что я купил две недели назад?", TWO_WEEKS_AGO),
        ("2023年5月3日に何をしましたか？", Span(2023, 5, 3)),
        ("先週は何をしましたか？", LAST_WEEK),
        ("2週間前に何を買いましたか？", TWO_WEEKS_AGO),
        ("我五月三号做了什么？", Span(None, 5, 3)),
        ("上周我们做了什么？", LAST_WEEK),
        ("我两周前买了什么？", TWO_WEEKS_AGO),
        ("我去年十二月去了哪里？", Span(None, 12)),
        ("Was habe ich zwischen dem 1. und 10. Mai gemacht?", Span(None, 5, 1, last=10)),
        ("Was haben wir vom 3. bis 7. Mai 2023 gemacht?", Span(2023, 5, 3, last=7)),
        ("Was haben wir von März bis Mai 2023 gemacht?", MARCH_TO_MAY),
        ("Was habe ich seit Mai gekauft?", SINCE_MAY),
        ("Was haben wir im letzten Winter gemacht?", WINTER),
        ("Qu'avons-nous fait entre le 1 et le 10 mai ?", Span(None, 5, 1, last=10)),
        ("Qu'avons-nous fait du 3 au 7 mai 2023 ?", Span(2023, 5, 3, last=7)),
        ("Qu'est-ce que j'ai acheté depuis mai ?", SINCE_MAY),
        ("¿Qué hicimos entre el 1 y el 10 de mayo?", Span(None, 5, 1, last=10)),
        ("¿Qué hicimos de marzo a mayo de 2023?", MARCH_TO_MAY),
        ("¿Qué he comprado desde mayo?", SINCE_MAY),
        ("¿Qué hicimos el invierno pasado?", WINTER),
        ("Che cosa abbiamo fatto dal 3 al 7 maggio 2023?", Span(2023, 5, 3, last=7)),
        ("O que eu fiz entre 1 e 10 de maio?", Span(None, 5, 1, last=10)),
        ("O que eu comprei desde maio?", SINCE_MAY),
        ("Wat heb ik tussen 1 en 10 mei gedaan?", Span(None, 5, 1, last=10)),
        ("Wat heb ik sinds mei gekocht?", SINCE_MAY),
        ("Что я делал с 3 по 7 мая 2023 года?", Span(2023, 5, 3, last=7)),
        ("Что мы делали прошлой зимой?", WINTER),
        ("Co robiłem 3 maja 2023 roku?", Span(2023, 5, 3)),
        ("Gdzie byłam w maju?", Span(None, 5)),
        ("Co robiliśmy w zeszłym tygodniu?", LAST_WEEK),
        ("Co kupiłem dwa tygodnie temu?", TWO_WEEKS_AGO),
        ("Co kupiłam od maja?", SINCE_MAY),
        ("3 Mayıs 2023'te ne yaptım?", Span(2023, 5, 3)),
        ("Mayısta neredeydim?", Span(None, 5)),
        ("Geçen hafta ne yaptık?", LAST_WEEK),
        ("İki hafta önce ne aldım?", TWO_WEEKS_AGO),
        ("2023년 5월 3일에 뭐 했나요?", Span(2023, 5, 3)),
        ("5월에 어디 갔어요?", Span(None, 5)),
        ("지난주에 뭐 했어요?", LAST_WEEK),
        ("두 주 전에 뭘 샀어요?", TWO_WEEKS_AGO),
        ("O que fizemos no fim de semana passado?", LAST_WEEKEND),
        ("Was haben wir im Jänner 2023 gemacht?", Span(2023, 1)),
    ],
)
def test_a_time_is_read(text: str, expected: Span) -> None:
    assert expected in spans(text, now=NOW)


@each_row(
    ("text", "english"),
    [
        ("Was war gestern?", "yesterday"),
        ("Was war letzten Montag?", "last Monday"),
        ("Was war im Dezember?", "in December"),
        ("Qu'ai-je fait hier ?", "yesterday"),
        ("¿Qué hice ayer?", "yesterday"),
        ("Che cosa ho fatto ieri?", "yesterday"),
        ("O que fiz ontem?", "yesterday"),
        ("O que fiz na semana passada?", "last week"),
        ("O que aconteceu há três dias?", "three days ago"),
        ("Wat deed ik gisteren?", "yesterday"),
        ("Что было вчера?", "yesterday"),
        ("Co robiłem wczoraj?", "yesterday"),
        ("Dün ne yaptım?", "yesterday"),
        ("어제 뭐 했어?", "yesterday"),
    ],
)
def test_a_short_question_is_read_as_in_english(text: str, english: str) -> None:
    assert spans(text, now=NOW) == spans(f"What did I do {english}?", now=NOW) != ()


@each_row(
    "text",
    [
        "Who is Montag in the novel?",
        "Where is my mayo?",
        "Real estate prices",
        "Gestern",
        "Is Marco with Domingo?",
        "What was the war about?",
        "Semana Santa tickets",
        "This once",
    ],
)
def test_a_foreign_word_is_no_time(text: str) -> None:
    assert spans(text, now=NOW) == ()


def test_what_english_has_too_stays_english() -> None:
    for text in ("Weekend in April", "August in Rome", "Winter in Oslo, 2023"):
        assert in_english(text) is None


@each_row(
    "text",
    [
        "Wann ist mein Zahnarzttermin?",
        "Um wie viel Uhr geht mein Flug?",
        "Quand est mon rendez-vous ?",
        "À quelle heure part mon train ?",
        "¿Cuándo es mi cita?",
        "¿A qué hora sale el tren?",
        "Quando è il mio appuntamento?",
        "Quando é a minha consulta?",
        "Wanneer is mijn afspraak?",
        "Когда у меня приём?",
        "Во сколько вылет?",
        "予約はいつですか？",
        "飛行機は何時に出ますか？",
        "我的预约是什么时候？",
        "飞机几点起飞？",
        "Kiedy mam wizytę u dentysty?",
        "Randevum ne zaman?",
        "예약이 언제예요?",
    ],
)
def test_a_question_asks_when(text: str) -> None:
    assert read(text, now=NOW).asks_when


@each_row(
    "text",
    [
        "Wo wohnt meine Schwester?",
        "Où habite ma sœur ?",
        "¿Dónde vive mi hermana?",
        "Где живёт моя сестра?",
        "姉はどこに住んでいますか？",
        "Z czego mają być okna?",
        "我姐姐住在哪里？",
    ],
)
def test_a_question_of_no_time_has_none(text: str) -> None:
    question = read(text, now=NOW)

    assert not question.asks_when
    assert question.times == ()


def test_english_is_read_as_it_is() -> None:
    assert spans("What did I do last week?", now=NOW) == (LAST_WEEK,)
    assert not read("Where does Jean vive?", now=NOW).asks_when
