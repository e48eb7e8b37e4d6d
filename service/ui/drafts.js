// Unsent forms, kept by the browser so that a reload brings them back: one per task and tab, for a day.

const TAB_KEY = "studio-tab";
const STORE = "drafts";
const DAY_MILLISECONDS = 86_400_000;

let opened = null;

/** The database; null where the browser offers none, as in some private windows: forms are then not kept. */
function database() {
  opened ??= new Promise((done) => {
    const request = indexedDB.open("studio", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => done(request.result);
    request.onerror = () => done(null);
  }).then(async (db) => {
    if (db) await removeOld(db);
    return db;
  });
  return opened;
}

const settled = (request) => new Promise((done) => (request.onsuccess = request.onerror = () => done(request.result)));

async function withStore(mode, action) {
  const db = await database();
  return db ? settled(action(db.transaction(STORE, mode).objectStore(STORE))) : undefined;
}

async function removeOld(db) {
  const store = db.transaction(STORE, "readwrite").objectStore(STORE);
  const drafts = await Promise.all([settled(store.getAllKeys()), settled(store.getAll())]);
  for (const [index, key] of drafts[0].entries()) if (drafts[1][index].at < Date.now() - DAY_MILLISECONDS) store.delete(key);
}

function keyOf(task) {
  const tab = sessionStorage.getItem(TAB_KEY) ?? `${Date.now()}-${Math.random()}`;
  sessionStorage.setItem(TAB_KEY, tab);
  return `${tab} ${task}`;
}

/** Keeps ``draft``: { spec, files, ... }, with files as Blobs. */
export const keep = (task, draft) => withStore("readwrite", (store) => store.put({ ...draft, at: Date.now() }, keyOf(task)));
/** The kept form of a task, or undefined. */
export const kept = (task) => withStore("readonly", (store) => store.get(keyOf(task)));
export const drop = (task) => withStore("readwrite", (store) => store.delete(keyOf(task)));
/** Forgets every kept form, of all tabs. */
export const dropAll = () => withStore("readwrite", (store) => store.clear());
