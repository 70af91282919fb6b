#!/usr/bin/env bash
# Compiles a program here and in a checkout of the base, compares both, and keeps one comment.
#
# Reads the variables that action.yml sets; in any other place set MEMORY_PROGRAM, and MEMORY_BASE to
# compare. Without MEMORY_PULL_REQUEST the comment is printed alone. Exit codes are those of bufdb:
# 1 where a limit is exceeded.
set -euo pipefail

: "${MEMORY_PROGRAM:?what to compile}"
scratch=$(mktemp -d)
base_tree=$scratch/base
finish() {
  git worktree remove --force "$base_tree" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT
db=${MEMORY_DATABASE:-$scratch/runs.duckdb}
[[ $db = /* ]] || db=$PWD/$db
new=${MEMORY_COMMIT:-$(git rev-parse HEAD)} new=${new:0:12}
comment=$scratch/comment.md
marker='<!-- bufdb: memory of compiled programs -->'

options=()
[[ -z ${MEMORY_TARGET:-} ]] || options+=(--target "$MEMORY_TARGET")
[[ -z ${MEMORY_LIMIT:-} ]] || options+=(--limit "$MEMORY_LIMIT")
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
# The words of the program as a shell reads them, without expanding anything in them.
mapfile -t program < <(python -c 'import os, shlex; print("\n".join(shlex.split(os.environ["MEMORY_PROGRAM"])))')

# Compiles in the working directory; options go before `--`.
compile() {
  [[ -z ${MEMORY_INSTALL:-} ]] || bash -c "$MEMORY_INSTALL"
  bufdb explain --db "$db" --run "$1" ${options[@]+"${options[@]}"} "${program[@]}"
}

code=0
compile "$new" >"$scratch/new.txt" || code=$?
cat "$scratch/new.txt"
# 1: it was compiled, and the limit is exceeded.
((code <= 1)) || exit "$code"
base=
if [[ -n ${MEMORY_BASE:-} ]] && git worktree add --quiet --detach "$base_tree" "$MEMORY_BASE"; then
  base=$(git rev-parse "$MEMORY_BASE") base=${base:0:12}
  (cd "$base_tree" && compile "$base") >"$scratch/base.txt" 2>&1 || (($? == 1)) || base=
fi

{
  echo "$marker"
  if [[ -n $base && $base != "$new" ]]; then
    bufdb diff --db "$db" "$base" "$new" --by source --top 5 --format markdown
  else
    echo "Nothing to compare with: the base has no such program, or does not compile."
    echo
    echo '```'
    cat "$scratch/new.txt"
    echo '```'
  fi
} >"$comment"
if [[ -n ${MEMORY_BUDGET:-} ]]; then
  echo >>"$comment"
  bufdb budget "$MEMORY_BUDGET" --db "$db" --run "$new" ${base:+--base "$base"} \
    --format markdown >>"$comment" || code=$?
fi

if [[ -z ${MEMORY_PULL_REQUEST:-} ]]; then
  cat "$comment"
  exit "$code"
fi
comments=repos/$MEMORY_REPOSITORY/issues/$MEMORY_PULL_REQUEST/comments
# The one that an earlier run wrote, if there is one.
earlier=$(gh api --paginate "$comments" \
  --jq ".[] | select(.body | startswith(\"$marker\")) | .id" | head -n 1)
if [[ -n $earlier ]]; then
  gh api --silent -X PATCH "repos/$MEMORY_REPOSITORY/issues/comments/$earlier" -F "body=@$comment"
else
  gh api --silent -X POST "$comments" -F "body=@$comment"
fi
exit "$code"
