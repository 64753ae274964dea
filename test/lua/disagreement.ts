/** Store and model disagree, or the store breaks an invariant. */
export class Disagreement extends Error {
  override readonly name = "Disagreement";
}
