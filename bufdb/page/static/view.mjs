// The window of the pictures: which steps and which offsets are seen. Curve and map share the
// steps.

/**
 * @typedef {{t0: number, t1: number, y0: number, y1: number}} View steps from t0 to before t1,
 *   offsets y0 to y1
 */
/** @typedef {{steps: number, arena: number}} Bounds number of steps; bytes of all arenas */

const FEWEST_STEPS = 8;
const FEWEST_BYTES = 4096;

/** All there is. @param {Bounds} bounds @returns {View} */
export function whole(bounds) {
  return { t0: 0, t1: bounds.steps, y0: 0, y1: Math.max(1, bounds.arena) };
}

/** From `low` to `high`, within 0 and `end`, not below `fewest` wide. @returns {[number, number]}
 *  @param {number} low @param {number} high @param {number} end @param {number} fewest */
function within(low, high, end, fewest) {
  const span = Math.min(end, Math.max(Math.min(fewest, end), high - low));
  const from = Math.max(0, Math.min(end - span, low));
  return [from, from + span];
}

/** The view moved into what there is. @param {View} view @param {Bounds} bounds @returns {View} */
export function clamp(view, bounds) {
  const [t0, t1] = within(view.t0, view.t1, bounds.steps, FEWEST_STEPS);
  const [y0, y1] = within(view.y0, view.y1, Math.max(1, bounds.arena), FEWEST_BYTES);
  return { t0, t1, y0, y1 };
}

/** Steps zoomed about `step`: a factor below 1 shows fewer. @returns {View}
 *  @param {View} view @param {Bounds} bounds @param {number} step @param {number} factor */
export function zoomSteps(view, bounds, step, factor) {
  return clamp(
    { ...view, t0: step - (step - view.t0) * factor, t1: step + (view.t1 - step) * factor },
    bounds,
  );
}

/** Offsets zoomed about `offset`. @returns {View}
 *  @param {View} view @param {Bounds} bounds @param {number} offset @param {number} factor */
export function zoomOffsets(view, bounds, offset, factor) {
  return clamp(
    { ...view, y0: offset - (offset - view.y0) * factor, y1: offset + (view.y1 - offset) * factor },
    bounds,
  );
}

/** The view moved by steps and bytes. @returns {View}
 *  @param {View} view @param {Bounds} bounds @param {number} steps @param {number} bytes */
export function pan(view, bounds, steps, bytes) {
  return clamp(
    { t0: view.t0 + steps, t1: view.t1 + steps, y0: view.y0 + bytes, y1: view.y1 + bytes },
    bounds,
  );
}

/** The view moved, no further than needed, until a step is seen. @returns {View}
 *  @param {View} view @param {Bounds} bounds @param {number} step */
export function show(view, bounds, step) {
  if (view.t0 <= step && step + 1 <= view.t1) return view;
  return pan(view, bounds, step < view.t0 ? step - view.t0 : step + 1 - view.t1, 0);
}
