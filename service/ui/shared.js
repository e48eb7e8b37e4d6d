// A shared result, read-only. The page's address is shared.html#JOB/TOKEN; browsers do not send the part after the hash.

import { alertUser, failure } from "./alert.js";
import * as api from "./api.js";
import { byId, el } from "./dom.js";
import { jobView } from "./live.js";
import { fillPage, t } from "./strings.js";
import { themeButton } from "./theme.js";

const ADDRESS = /^#([0-9a-f-]{36})\/(aps_link_[\w-]{43})$/;

async function open() {
  alertUser(null);
  byId("view").replaceChildren(el("h1", { textContent: t.shared.title }));
  const [, id, token] = ADDRESS.exec(location.hash) ?? [];
  if (!id) throw new api.Problem({ detail: t.shared.broken });
  const job = await api.openShared(id, token);
  const view = jobView(job, { type: job.task }, { operators: [] }, { onProblem: alertUser });
  byId("view").replaceChildren(view.element);
  byId("shared").textContent = t.shared.lede(t.until(job.expires_at));
}

fillPage();
themeButton(byId("theme"));
/** Says in the page why there is nothing to show. */
const refuse = (problem) => byId("view").replaceChildren(failure(problem.title || t.shared.title, problem));
const show = api.guarded(refuse, open);
window.addEventListener("hashchange", show);
show();
