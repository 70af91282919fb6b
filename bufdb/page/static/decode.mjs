// Slots of the page as columns of numbers: base64, gzip, a JSON head, then zigzag varints column by
// column.

/** @typedef {{[name: string]: Float64Array}} Columns */

/** The bytes of base64 text. @param {string} text */
export function fromBase64(text) {
  const built = /** @type {{fromBase64?: (text: string) => Uint8Array<ArrayBuffer>}} */ (
    /** @type {unknown} */ (Uint8Array)
  ).fromBase64;
  if (built) return built.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** The bytes that a slot's text holds, unpacked. @param {string} text base64 of gzip */
export async function unpack(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Zigzag varints from `at` on, little end first; differences are summed up.
 *
 * By multiplication, not by shifts: offsets pass 2³¹. What passes 2⁵³ is refused, never rounded.
 * @param {Uint8Array} data @param {number} at @param {number} count @param {boolean} isDelta
 * @returns {[Float64Array, number]} the numbers, and where the next column begins
 */
export function readVarints(data, at, count, isDelta) {
  const numbers = new Float64Array(count);
  let last = 0;
  for (let i = 0; i < count; i++) {
    let byte = data[at++];
    let value = byte & 127;
    let scale = 128;
    while (byte > 127) {
      byte = data[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    }
    if (byte === undefined) throw new Error("the data ends within a column");
    if (value > Number.MAX_SAFE_INTEGER) throw new Error("a number passes 2^53");
    const number = value % 2 ? -(value + 1) / 2 : value / 2;
    last = isDelta ? last + number : number;
    numbers[i] = last;
  }
  return [numbers, at];
}

/**
 * Head and columns of an unpacked slot.
 * @param {Uint8Array<ArrayBuffer>} data
 * @returns {{head: any, columns: Columns}} the head as the JSON says it, each column as numbers
 */
export function decode(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  /** @type {Columns} */
  const columns = Object.create(null);
  let at = 4 + length;
  for (const [name, count, isDelta] of head.columns) {
    [columns[name], at] = readVarints(data, at, count, Boolean(isDelta));
  }
  if (at !== data.length) throw new Error("the data is longer than its columns");
  return { head, columns };
}
