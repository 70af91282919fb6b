"""Text without a user's words: which words stay, and what replaces the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from string import ascii_lowercase

from bufdb import resources
from bufdb.read.own import CHECKED_OUT, INSTALLED, TYPED

# --------------------------------------------------------------------------------------------------
# Words that stay in an anonymous export: of XLA, of JAX, of the format and of bufdb's own rules.
#
# A user's words have no known form, so the list has the words that are not the user's: any other
# word is replaced. A word too many is one in ten thousand that could have been the user's, such as
# `cross`; a word too few only makes an answer harder to read.

_HLO = """
abs add after all and async bitcast broadcast call cbrt ceil cholesky clamp clone clz collective
compare complex concatenate conditional constant convert convolution copy cosine count custom
degenerate divide done domain dot dynamic element erf exponential fft floor fusion gather general
get dimension imag index infeed invariant iota is finite leading log map maximum minimum minus
multiply negate not one optimization barrier or outfeed output pad parameter partition id permute
plus popcnt power ragged real recv reduce window precision start remainder replica reshape reverse
rng state round nearest afz even scan scatter select send set shift left right arithmetic logical
sign sine size slice sort sqrt rsqrt stochastic subtract tan tanh token topk transpose triangular
solve tuple update while xor zeros zeroes to by
pred opaque bf fn fnuz
"""
"""Opcodes and element types, split into words."""
_TEXT = """
kind calls computation computations fused fusible wrapped region body condition metadata op type
name source file line end column stack frame frames backend config sharding replicated maximal
devices device manual last tile dim dims dimensions subgroup shard group groups ids parameters
attributes frontend lhs rhs contracting batch labels window size stride lhs rhs dilate reversal
feature count indices sorted unique operand operands precision highest high default algorithm
direction comparison total eq ne ge gt le lt slice sizes strides channel schedule scheduling
aliasing alias may must indexing vector api version layout layouts constraints constraint side
effect true false false branch branches true trip known induction variable init step inf nan
root entry statistics original origin conditional upper lower unit diag jit thread threads local
live out maybe preallocated temp donated page host memory space spaces scoped configs used flag
scratchpad operation earliest force reification all cost control is predecessors
invalid queue outer wide sunk double peeled nested remat pipelined prefetch cross program
kloop kinput koutput kcustom knone kernel loop input output triton gemm gemms cublas cudnn onednn
ynn matmul fp tiles tile warps warp stages ctas specialization level allowed num waves block eu
tma lapack ffi typed success status returning topk concat target call custom spmd generated
implicit pass default strategy mode lt cpu gpu tpu cuda rocm sm gfx nccl hlo xla jax jaxlib
strategies vmem hbm smem cmem sflag device default collective
module modules optimizations before after buffer assignment values range value uses positions
used live txt debug options dump cl pjit pmap xmap inference cluster graph cond tensors sync ir
bits mesh axis axes rep names scalar layer reduction prepacked weights
at error expected found got unknown missing not no none null there here read line lines the dump
has have had of from in on for with without which what who where when and or an as be been are was
it its this that than more less file files instruction instructions allocation allocations shape
bytes sum peak text texts table tables time times number numbers order program truncated unreadable
could contains total only both same other another first last given
must compile xlamustcompile synctensorsgraph irtohlo convertxlatohlo
saved slice copy for variables lists sdy arg args ws dilated chunk bound strategies
"""
"""Other words in XLA's texts and bufdb's messages."""
_JAX = """
jit pjit jvp transpose vmap remat rematted checkpoint closed call core custom vjp shard map scan
cond body fun branch main while xla python broadcast in dim general dot mul add sub div neg
max min exp log sin cos tan tanh logistic rsqrt sqrt pow integer erf inv lgamma digamma abs sign
floor ceil round rem and or not xor eq ne lt le gt ge select convert element type reduce sum
prod argmax argmin cumsum cumprod cummax cumlogsumexp sort iota gather scatter dynamic slice
update squeeze linearize eval jaxpr expand dims reshape rev concatenate pad conv dilated bitcast
copy stop gradient gradients tape
random bits seed wrap unwrap uniform normal bernoulli categorical shuffle permutation threefry fold
key keys where clip take along axis one hot softmax relu gelu silu tril triu einsum matmul var mean
std norm split stack unstack tile repeat linalg cholesky qr svd lu eigh triangular solve fft
psum pmax pmin ppermute all reduce axis index callback pure io debug print device put pallas
locals lambda module site dist packages lib python frozen usr local opt jax jaxlib flax optax
numpy py value and
"""
"""Primitives and scopes of JAX, and parts of installation paths."""
_LABELS = "jax jaxlib xla flags git commit command exit code device batch platform backend dirty"


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall("[A-Za-z]+", text)}


def known_words() -> frozenset[str]:
    """Return the words in lower case, including those that bufdb's rules need to still apply."""
    rules = "".join(
        path.read_text(encoding="utf-8").partition("INSERT INTO")[2]
        for path in resources.schema_files("tables")
        if path.stem in ("op_categories", "role_rules", "memory_spaces")
    )
    return frozenset(
        word
        for text in (_HLO, _TEXT, _JAX, _LABELS, INSTALLED, TYPED, CHECKED_OUT, rules)
        for word in _words(re.sub("--.*", "", text))
    )


# --------------------------------------------------------------------------------------------------
# Words put in place of others: the same for the same, in every text, and never one that stays.
#
# A text is words and what is between them. Since words and the rest are kept apart, and no two
# words become one, two texts are the same afterwards exactly if they were before: what is found by
# its name is still found. Numbers and punctuation stay, so sizes, lines and shapes do. A user's
# functions and files are replaced whole, whatever words and numbers they are made of.

# A hexadecimal hash, such as a commit; else everything but digits, ASCII punctuation and spaces,
# with XLA's octal escapes of UTF-8.
_WORD = re.compile(
    r"(?<![A-Za-z0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}(?![A-Za-z0-9])"
    r"|(?:[^\x00-\x40\x5b-\x60\x7b-\x7f]|\\[0-7]{3})+"
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_SUFFIX = re.compile("py|txt|pb|log|gz|zst|json|toml|zip|tar")
_SHORT = re.compile("[A-Za-z]")
"""A single letter stays: it reveals nothing, and XLA uses most of them."""


_PART = r"[\w.+@~-]+"
_BEGIN = r"(?<![\w.+@~/-])"
_WHOLE = re.compile(
    # Files: absolute, or Python's; folders before a module's files; addresses.
    rf"(?P<path>(?<![\w.)\]}}>*/+@~-])/(?:{_PART}/)*{_PART}"
    rf"|{_BEGIN}(?:{_PART}/)*{_PART}\.py(?!\w)"
    rf"|{_BEGIN}(?:{_PART}/)+(?=module_\d{{4}}))"
    r"|(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
    # Functions: where JAX names them, and names of several words.
    r"|(?<=jit\()(?P<called>\w+)|(?P<name>[^\W\d]\w*)"
)
_NAME = re.compile(r"[^\W\d]\w*")
_NO_FUNCTIONS = ("main", "locals", "lambda", "module")
"""JAX's name for a program, and Python's names for unnamed code."""
_LIBRARY = re.compile(
    r"(?:^|/)(?:(?:(?:site|dist)-packages|lib(?:64)?/(?:python|pypy)[\d.]+t?)(?:/|$)"
    f"|{CHECKED_OUT})"
)
"""The part of a path from it on belongs to a package that is no user's, or to Python."""


class Words:
    """The replacement of each word, for one export."""

    def __init__(self, functions: Iterable[str] = ()) -> None:
        """Prepare an export; `functions` are the names of the user's functions."""
        self.functions = frozenset(
            part for name in functions for part in _NAME.findall(name) if part not in _NO_FUNCTIONS
        )
        self.known = known_words()
        self.codes: dict[str, str] = {}
        self.unused = (code for number in count(1) if (code := _code(number)) not in self.known)

    def function(self, name: str) -> str:
        """Return the replacement of a function's name."""
        return self.whole(name) if name in self.functions else self.text(name)

    def text(self, text: str) -> str:
        """Return the text with all unknown words replaced."""
        parts, at = [], 0
        for match in _WHOLE.finditer(text):
            replaced = self._whole_of(match)
            if replaced is not None:
                parts += [_WORD.sub(self._replaced, text[at : match.start()]), replaced]
                at = match.end()
        return "".join([*parts, _WORD.sub(self._replaced, text[at:])])

    def rule(self, text: str) -> str:
        """Return a rule with its words replaced; names in bufdb's rules are never the user's."""
        return _WORD.sub(self._replaced, text)

    def whole(self, text: str) -> str:
        """Return the replacement of a whole text; a single letter stays."""
        if text and not _SHORT.fullmatch(text) and text not in self.codes:
            self.codes[text] = next(self.unused)
        return self.codes.get(text, text)

    def _whole_of(self, match: re.Match[str]) -> str | None:
        """Return the replacement of a user's file, function or address; None for anything else."""
        text = match[0]
        if match["address"]:
            return self.whole(text)
        if match["path"]:
            return self._path(text)
        if match["called"]:
            is_one = text.strip("_").lower() in self.known and text not in self.functions
            return None if is_one else self.whole(text)
        # A single word that XLA also uses is taken as XLA's here.
        if text in self.functions and text.strip("_").lower() not in self.known:
            return self.whole(text)
        jit, _, name = text.partition("jit_")
        return f"jit_{self.whole(name)}" if not jit and name in self.functions else None

    def _path(self, text: str) -> str:
        library = _LIBRARY.search(text)
        own = text[: library.start()] if library else text
        stem, dot, suffix = own.rpartition(".")
        if not dot or "/" in suffix or not _SUFFIX.fullmatch(suffix):
            stem, dot, suffix = own, "", ""
        parts = "/".join(map(self.whole, stem.split("/")))
        rest = _WORD.sub(self._replaced, text[len(own) :])
        return f"{parts}{dot}{suffix}{rest}"

    def _replaced(self, match: re.Match[str]) -> str:
        word = _unescaped(match[0])
        if word.lower() in self.known or _SHORT.fullmatch(word):
            return match[0]
        if word not in self.codes:
            self.codes[word] = next(self.unused)
        return self.codes[word]


def _unescaped(word: str) -> str:
    """Return the word with octal escapes decoded, as other texts have it."""
    if "\\" not in word:
        return word
    data = _ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), word.encode())
    return data.decode(errors="backslashreplace")


def _code(number: int) -> str:
    """Return the n-th code word: xa, xb, …, xz, xaa and so on."""
    letters = ""
    while number:
        number, place = divmod(number - 1, len(ascii_lowercase))
        letters = ascii_lowercase[place] + letters
    return "x" + letters
