"""Texts of many kinds for counting tokens: the standard library, made-up data, written passages."""

import ast
import base64
import json
import random
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

LANGUAGES = {
    "German": (
        "Die Werkstatt hat gestern angerufen: Das Ersatzteil für die Waschmaschine kommt erst am "
        "Donnerstag, und der Monteur braucht ungefähr zwei Stunden. Könntest du bitte den "
        "Hausmeister fragen, ob er den Kellerschlüssel solange bei den Nachbarn lässt? Außerdem "
        "müssen wir die Rechnung noch in diesem Monat überweisen, sonst verfällt der Rabatt."
    ),
    "Spanish": (
        "Mañana por la tarde llegan mis primos de Zaragoza y todavía no he comprado nada para la "
        "cena. ¿Me recomiendas una receta sencilla con berenjenas y queso que se pueda preparar en "
        "menos de una hora? A mi tía no le gusta el ajo, y el niño pequeño es alérgico a los "
        "frutos secos, así que conviene leer bien las etiquetas."
    ),
    "Finnish": (
        "Mökin katto alkoi vuotaa viime viikolla, joten soitimme heti paikalliselle korjaajalle. "
        "Hän lupasi tulla katsomaan vauriota keskiviikkona, jos sää sallii. Sillä välin olemme "
        "siirtäneet huonekalut toiseen huoneeseen ja levittäneet lattialle vanhoja pyyhkeitä, "
        "ettei puulattia kastuisi enempää."
    ),
    "Russian": (
        "Вчера вечером мы долго спорили, куда поехать в отпуск. Сестра хочет к морю, а я "
        "предпочёл бы горы: там прохладнее и меньше людей. В конце концов решили сначала "
        "посмотреть цены на билеты и узнать, где можно снять недорогой домик с кухней недалеко "
        "от озера."
    ),
    "Greek": (
        "Το πρωί περπάτησα μέχρι την αγορά για να πάρω ψωμί, ελιές και λίγες ντομάτες. Ο κύριος "
        "στο ταμείο με ρώτησε αν θέλω σακούλα, αλλά είχα ήδη φέρει τη δική μου. Στον δρόμο της "
        "επιστροφής άρχισε ξαφνικά να βρέχει και μπήκα σε ένα μικρό καφενείο."
    ),
    "Arabic": (
        "وصلت الرسالة صباح اليوم، لكنني لم أجد وقتا لقراءتها قبل الاجتماع. هل يمكنك أن تخبرني "
        "بالنقاط المهمة فيها؟ أريد أن أعرف متى يبدأ المشروع الجديد، ومن سيكون مسؤولا عن "
        "الميزانية، وهل نحتاج إلى موظفين آخرين قبل نهاية السنة."
    ),
    "Hindi": (
        "कल शाम को बाज़ार में बहुत भीड़ थी, इसलिए हम देर से घर पहुँचे। माँ ने चाय बनाई और हमने मिलकर "
        "अगले महीने की यात्रा की योजना बनाई। क्या आप मुझे बता सकते हैं कि जयपुर से उदयपुर जाने के लिए "
        "सबसे सस्ती रेलगाड़ी कौन सी है और टिकट कितने का मिलेगा?"
    ),
    "Thai": (
        "เมื่อวานนี้ฉันไปตลาดน้ำกับเพื่อนสองคน เราซื้อผลไม้และขนมหลายอย่าง แล้วนั่งเรือเล่นประมาณหนึ่งชั่วโมง "
        "อากาศร้อนมากแต่ก็สนุกดี ครั้งหน้าเราอยากไปแต่เช้าเพราะคนจะน้อยกว่านี้ คุณช่วยแนะนำร้านอาหารใกล้ ๆ "
        "ที่ราคาไม่แพงได้ไหม"
    ),
    "Chinese": (
        "上个星期我把自行车送去修理，师傅说链条和刹车都要换新的，大概需要三天。"
        "昨天我打电话去问，他说零件还没有到，让我再等两天。如果星期五还修不好，"
        "我就只能坐地铁上班了。你知道附近还有别的修车店吗？最好价格便宜一点，周末也开门。"
    ),
    "Japanese": (
        "先週の土曜日に友達と山に登りました。朝は少し曇っていましたが、昼ごろから晴れて、頂上から海まで"
        "見えました。お弁当を食べたあと、近くの温泉に寄ってゆっくり休みました。"
        "来月は別のコースを歩くつもりなので、雨でも滑りにくい靴を探しています。おすすめはありますか。"
    ),
    "Korean": (
        "지난주에 새 집으로 이사를 했는데 아직 정리가 다 끝나지 않았어요. 책이 너무 많아서 "
        "책장을 하나 더 사야 할 것 같아요. 근처에 가구를 싸게 파는 가게가 있으면 알려 주세요. "
        "그리고 인터넷 설치는 다음 주 화요일 오후 세 시에 하기로 예약했습니다."
    ),
}

_EMOJI = "😀😂🥰👍🏽🎉🔥✨🚀🌍🍕🐶👩‍💻🇫🇷❤️✅😭🤔🙏💡📦"
_MODULES = (
    *("argparse", "asyncio/tasks", "csv", "datetime", "email/message", "heapq", "inspect"),
    *("json/decoder", "logging/__init__", "pathlib", "random", "shutil", "statistics"),
)


def docstrings() -> Iterator[str]:
    """Yield the longer docstrings of some modules."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for source in sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, kinds):
                text = ast.get_docstring(node) or ""
                if len(text) > 300:
                    yield text


def sources() -> Iterator[str]:
    """Yield the source of some modules."""
    for name in _MODULES:
        path = Path(sysconfig.get_path("stdlib"), f"{name}.py")
        yield path.read_text(encoding="utf-8")


def made_up(rng: random.Random) -> dict[str, list[str]]:
    """Return twenty texts of each kind of data."""
    return {kind: [make(rng) for _ in range(20)] for kind, make in _MAKERS.items()}


def _record(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**6),
        "name": rng.choice(("Ada Byron", "Lin Wei", "Omar Haddad")),
        "active": rng.random() < 0.5,
        "tags": rng.sample(("red", "urgent", "billing", "new"), 2),
        "address": {
            "city": rng.choice(("Oslo", "Lima", "Pune")),
            "zip": f"{rng.randrange(99999):05}",
        },
        "score": round(rng.random() * 100, 2),
    }


def _json(rng: random.Random) -> str:
    return json.dumps([_record(rng) for _ in range(8)], indent=rng.choice((None, 2)))


def _log_line(rng: random.Random) -> str:
    day = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    level = rng.choice(("INFO", "WARN", "ERROR"))
    request = f"GET /v1/orders/{rng.randrange(10**6)} {rng.choice((200, 404, 503))}"
    place = f"[worker-{rng.randrange(9)}] http.server"
    return f"{day}T{rng.randrange(24):02}:17:45.123Z {level} {place}: {request} in 35ms"


def _url(rng: random.Random) -> str:
    host = rng.choice(("example", "shop", "wiki"))
    path = "/".join(rng.sample(("docs", "api", "v2", "users", "search", "img", "latest"), 3))
    return f"https://www.{host}.org/{path}?id={rng.randrange(10**5)}&lang=en#top"


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "JSON": _json,
    "log lines": lambda rng: "\n".join(_log_line(rng) for _ in range(15)),
    "URLs": lambda rng: "\n".join(_url(rng) for _ in range(15)),
    "digits": lambda rng: " ".join(str(rng.randrange(10 ** rng.randint(1, 12))) for _ in range(60)),
    "base64": lambda rng: base64.b64encode(rng.randbytes(300)).decode(),
    "hex": lambda rng: " ".join(rng.randbytes(rng.choice((4, 16, 32))).hex() for _ in range(15)),
    "emoji": lambda rng: "".join(rng.choices(list(_EMOJI), k=40)),
}
