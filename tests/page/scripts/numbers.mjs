// What the tests share: numbers that are the same on every machine, and blocks from rows.

/** Pseudo-random numbers from a seed (a linear congruence, as in Numerical Recipes). */
export class Numbers {
  /** @param {number} seed */
  constructor(seed) {
    this.state = seed;
  }

  /** A whole number from 0 to before `end`. @param {number} end */
  below(end) {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.state / 2 ** 32) * end);
  }
}

/** Blocks of rows [first step, last step, offset, size]. @param {number[][]} rows */
export function rectangles(rows) {
  const [start, end, offset, size] = [0, 1, 2, 3].map(column =>
    Float64Array.from(rows, row => row[column]),
  );
  return { start, end, offset, size };
}

/** Zigzag varints, by the definition of protobuf. @param {number[]} numbers */
export function varints(numbers) {
  const bytes = [];
  for (const number of numbers) {
    let value = number < 0 ? BigInt(number) * -2n - 1n : BigInt(number) * 2n;
    for (; value > 127n; value >>= 7n) bytes.push(Number(value & 127n) | 128);
    bytes.push(Number(value));
  }
  return Uint8Array.from(bytes);
}
