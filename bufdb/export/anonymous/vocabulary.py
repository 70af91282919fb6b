"""Words that stay in an anonymous export: of XLA, of JAX, of the format and of bufdb's own rules.

Nothing is known of what a user's words look like, so the list says which are not: a word that is
not here is replaced. A word too many is one in ten thousand that could have been the user's, such
as `cross`; a word too few makes an answer harder to read, and nothing else.
"""

from __future__ import annotations

import re

from bufdb import resources

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
"""Opcodes and element types, their words apart."""
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
"""What else the texts of XLA and the messages of bufdb hold."""
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
"""Primitives and scopes of JAX, and what its paths hold of an installation."""
_LABELS = "jax jaxlib xla flags git commit command exit code device batch platform backend dirty"


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall("[A-Za-z]+", text)}


def known_words() -> frozenset[str]:
    """The words in lower case; with those of bufdb's rules, so that the rules still hold."""
    rules = "".join(
        path.read_text(encoding="utf-8").partition("INSERT INTO")[2]
        for path in resources.schema_files("tables")
        if path.stem in ("op_categories", "role_rules", "memory_spaces")
    )
    return frozenset(
        word
        for text in (_HLO, _TEXT, _JAX, _LABELS, rules)
        for word in _words(re.sub("--.*", "", text))
    )
