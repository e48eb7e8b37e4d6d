// Sharing a result: makes a link, shows it with its end in words, and ends all links to the result.

import * as api from "./api.js";
import { button, el } from "./dom.js";
import { t } from "./strings.js";

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** A button, and the box it opens; ``show`` hides the button of a job that cannot be shared. */
export function shareBox(first, described, onProblem) {
  const field = el("input", { id: "share-link", readOnly: true, onfocus: () => field.select(), "aria-describedby": "share-help" });
  const status = el("span", { class: "help", role: "status" });
  const copy = button(t.copy, async () => {
    await navigator.clipboard.writeText(field.value);
    status.textContent = t.copied;
  }, { class: "small", hidden: !navigator.clipboard });
  const link = el("div", { class: "field", hidden: true }, el("label", { htmlFor: "share-link", textContent: t.share.label }), field);
  const help = el("p", { id: "share-help", class: "help", role: "status" });
  const end = button(t.share.end, api.guarded(onProblem, async () => {
    await api.unshare(first);
    tell(t.share.ended);
  }), { class: "small quiet" });
  const tools = el("div", { class: "chips" }, copy, end, status);
  const element = el("section", { class: "share", "aria-label": t.share.title, hidden: true }, link, help, tools);
  const share = button(t.share.button, api.guarded(onProblem, async () => {
    const { url, expires_at: ends } = await api.share(first);
    field.value = new URL(url, location.href).href;
    const here = LOOPBACK.includes(new URL(field.value).hostname) ? ` ${t.share.here}` : "";
    tell(t.share.who(t.until(ends)) + here, true);
    link.hidden = false;
    copy.hidden = !navigator.clipboard;
    field.focus();
  }), { hidden: !described.limits.max_share_seconds });

  /** Shows the state of sharing; ``active`` tells whether there are links. The link itself is shown only when it is made. */
  function tell(text, active = false) {
    element.hidden = false;
    link.hidden = copy.hidden = true;
    help.textContent = text;
    status.textContent = "";
    end.hidden = !active;
  }

  const show = (job) => {
    share.hidden = job.state !== "succeeded" || new Date(job.expires_at) < new Date() || !described.limits.max_share_seconds;
    const shared = job.shared_until && new Date(job.shared_until) > new Date();
    if (shared && !share.hidden) tell(t.share.active(t.until(job.shared_until)), true);
  };
  return { button: share, element, show };
}
