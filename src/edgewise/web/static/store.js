// Conversations are kept in this browser's IndexedDB and nowhere else. Without it (some private windows) they last as long as the page.

const NAME = "edgewise";
const STORE = "conversations";

export async function openStore() {
  try {
    return new BrowserStore(await openDatabase());
  } catch {
    return new MemoryStore();
  }
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

class BrowserStore {
  lasting = true;

  constructor(database) {
    this.database = database;
    database.onversionchange = () => database.close();
  }

  run(mode, use) {
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(STORE, mode);
      const request = use(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  }

  all() {
    return this.run("readonly", (store) => store.getAll());
  }

  put(chat) {
    return this.run("readwrite", (store) => store.put(chat));
  }

  remove(id) {
    return this.run("readwrite", (store) => store.delete(id));
  }

  clear() {
    return this.run("readwrite", (store) => store.clear());
  }
}

class MemoryStore {
  lasting = false;
  chats = new Map();

  async all() {
    return [...this.chats.values()];
  }

  async put(chat) {
    this.chats.set(chat.id, structuredClone(chat));
  }

  async remove(id) {
    this.chats.delete(id);
  }

  async clear() {
    this.chats.clear();
  }
}
