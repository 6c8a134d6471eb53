"""Log lines as crawlers write them, from a seed: about 125 bytes each, with ids, hosts and Chinese.

The same seed gives the same lines. Two words are inserted, three times each, at random places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

_WORDS = (  # noqa: SIM905 - a list of words
    "catalogue product review listing archive search article profile gallery forum category "
    "download invoice station weather market report library museum garden kitchen railway "
    "harbour mountain village picture journal subject teacher student machine engine window"
).split()
_FAILURES = (
    "connection reset by peer",
    "timed out after 30 s",
    "could not resolve host",
    "certificate has expired",
    "HTTP 503 from upstream",
    "response larger than the limit",
)
#: Characters of the Chinese texts.
_CHINESE = [chr(0x4E00 + number) for number in range(2_500)]
LEVELS = (10, 20, 30, 40)
_LEVEL_WEIGHTS = (30, 60, 7, 3)
_KIND_WEIGHTS = (45, 20, 12, 10, 8, 5)
_HOSTS = 400

#: Inserted. Each of the two characters is in nearly every piece, but next to each other only here.
WORD = "quetzalcoatlus"
CHINESE = "世乡"
#: Does not occur.
ABSENT = "zugzwangfall"
#: Occurrences of an inserted word.
TIMES = 3


class Corpus:
    """`count` lines, as (level, text)."""

    def __init__(self, seed: int, count: int) -> None:
        self._rng = Random(seed)
        self._count = count
        places = self._rng.sample(range(count), 2 * TIMES)
        self._words, self._chinese = set(places[:TIMES]), set(places[TIMES:])
        self._hosts = [self._host() for _ in range(_HOSTS)]
        self._bits = self._rng.getrandbits

    def lines(self) -> Iterator[tuple[int, str]]:
        levels = self._rng.choices(LEVELS, _LEVEL_WEIGHTS, k=9_967)
        kinds = self._rng.choices(self._kinds(), _KIND_WEIGHTS, k=9_973)
        for number in range(self._count):
            text = kinds[number % len(kinds)]()
            if number in self._words:
                text += f" seen {WORD} here"
            if number in self._chinese:
                text += f" 产品{CHINESE}名称"
            yield levels[number % len(levels)], text

    def _kinds(self) -> list[Callable[[], str]]:
        return [self._page, self._block, self._wait, self._item, self._failure, self._trace]

    def _host(self) -> str:
        pick = self._rng.choice
        return f"www.{pick(_WORDS)}-{pick(_WORDS)}{self._rng.randrange(100)}.example"

    def _url(self) -> str:
        bits, words = self._bits, _WORDS
        host, path = self._hosts[bits(16) % _HOSTS], words[bits(5)]
        return f"https://{host}/{path}/{words[bits(5)]}/{bits(20)}"

    def _page(self) -> str:
        bits = self._bits
        return (
            f"GET {self._url()} 200 {bits(17)} bytes in {bits(10)} ms "
            f"request {bits(32):08x}{bits(32):08x} attempt {1 + bits(1)}"
        )

    def _block(self) -> str:
        bits = self._bits
        return (
            f"block {bits(40)} of run nightly-{bits(8)} leased to agent home-{bits(6)} "
            f"with {bits(7)} requests, token {bits(12)}, {bits(3)} blocks held"
        )

    def _wait(self) -> str:
        bits = self._bits
        return (
            f"host {self._hosts[bits(16) % _HOSTS]} waits {bits(13)} ms: rate limit of 1.0/s, "
            f"{bits(9)} requests queued, next at 10.{bits(8)}.{bits(8)}.{bits(8)}:{bits(16)}"
        )

    def _item(self) -> str:
        bits = self._bits
        # The characters of CHINESE never meet: after the first one only others follow.
        name = "".join(_CHINESE[bits(32) % 2_500] for _ in range(10 + bits(4)))
        return (
            f"解析 {self._url()} 标题 {name.replace(CHINESE, '世人')} 价格 {bits(12)}.{bits(6)} 元"
        )

    def _failure(self) -> str:
        bits = self._bits
        return (
            f"{self._url()}: {_FAILURES[bits(8) % len(_FAILURES)]}; retry {bits(2)} in {bits(6)} s"
        )

    def _trace(self) -> str:
        bits = self._bits
        line, word = bits(9), _WORDS[bits(5)]
        return (
            f"callback parse_{word} failed\nTraceback (most recent call last):\n"
            f'  File "spiders/{word}.py", line {line}, in parse_{word}\n'
            f"    price = node.css('.price::text').get().strip()\n"
            f"AttributeError: 'NoneType' object has no attribute 'strip' ({bits(32):08x})"
        )
