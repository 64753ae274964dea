import { actions, button, byId, Component, html } from "./dom.js";

/** A text with a button that copies it. @extends {Component<{ name: string, label: string, value: string, kind?: string }, { copied: string }>} */
export class Copyable extends Component {
  state = { copied: "" };

  copy = async () => {
    const shown = byId(`${this.props.name}-text`);
    try {
      // Only there over HTTPS and on this machine.
      await navigator.clipboard.writeText(shown.textContent ?? "");
      this.setState({ copied: "Copied." });
    } catch {
      getSelection()?.selectAllChildren(shown);
      this.setState({ copied: "It is selected: copy it with Ctrl+C." });
    }
  };

  render() {
    const { name, label, value, kind = "" } = this.props;
    const copied = html`<span role="status" class="hint">${this.state.copied}</span>`;
    return html`<output id=${`${name}-text`} class=${`copied ${kind}`.trim()} tabindex="0" aria-label=${label}>${value}</output>
      ${actions(
        button("Copy", () => void this.copy(), { id: `${name}-copy`, class: "primary" }),
        copied,
      )}`;
  }
}
