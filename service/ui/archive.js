// ZIP files: the pictures in one are read, and results are packed into one, without a library.

import { t } from "./strings.js";

const TYPES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", webp: "image/webp" };
const END = 0x06054b50; // end of the central directory, at most 22 bytes and a comment from the end of the file
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const END_BYTES = 22;
const LONGEST_COMMENT = 65_535;
const UTF8 = 1 << 11;
const METHODS = { stored: 0, deflated: 8 };

const extension = (name) => name.split(".").at(-1).toLowerCase();

/** Media type of a picture by its name; undefined for other files. */
export const pictureType = (name) => TYPES[extension(name)];
export const isArchive = (file) => extension(file.name) === "zip";

/** The pictures in ``file``: at most ``most``, none larger than ``bytes`` unpacked. Raises an Error with a readable message. */
export async function picturesIn(file, { most, bytes }) {
  const found = (await entriesOf(file)).filter(({ name }) => pictureType(name) && !/(^|\/)(__MACOSX\/|\.)/.test(name));
  if (found.length > most) throw new Error(t.several.tooMany(most));
  const pictures = [];
  for (const entry of found) {
    if (entry.size > bytes) throw new Error(t.several.tooLarge(entry.name));
    pictures.push(new File([await unpacked(file, entry, bytes)], entry.name.split("/").at(-1), { type: pictureType(entry.name) }));
  }
  return pictures;
}

async function entriesOf(file) {
  const from = Math.max(0, file.size - END_BYTES - LONGEST_COMMENT);
  const tail = await viewOf(file.slice(from));
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end -= 1;
  if (end < 0) throw new Error(t.several.unreadable(file.name));
  const [bytes, start] = [tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  if (start + bytes > file.size) throw new Error(t.several.unreadable(file.name));
  const list = await viewOf(file.slice(start, start + bytes));
  const entries = [];
  for (let at = 0; at + 46 <= list.byteLength && list.getUint32(at, true) === ENTRY; ) {
    const length = list.getUint16(at + 28, true);
    const name = new TextDecoder().decode(new Uint8Array(list.buffer, at + 46, Math.min(length, list.byteLength - at - 46)));
    entries.push({ name, method: list.getUint16(at + 10, true), packed: list.getUint32(at + 20, true), size: list.getUint32(at + 24, true), start: list.getUint32(at + 42, true) });
    at += 46 + length + list.getUint16(at + 30, true) + list.getUint16(at + 32, true);
  }
  return entries;
}

/** Content of an entry. Its declared size is not trusted: unpacking stops after ``most`` bytes. */
async function unpacked(file, { name, method, packed, start }, most) {
  const head = await viewOf(file.slice(start, start + 30));
  if (head.byteLength < 30 || head.getUint32(0, true) !== LOCAL) throw new Error(t.several.unreadable(file.name));
  const from = start + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const content = file.slice(from, from + packed);
  if (method === METHODS.stored) return content;
  if (method !== METHODS.deflated) throw new Error(t.several.unreadable(file.name));
  const reader = content.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  for (let total = 0; ; ) {
    const { done, value } = await reader.read().catch(() => {
      throw new Error(t.several.unreadable(file.name));
    });
    if (done) return new Blob(parts);
    total += value.length;
    if (total > most) {
      await reader.cancel();
      throw new Error(t.several.tooLarge(name));
    }
    parts.push(value);
  }
}

const viewOf = async (blob) => new DataView(await blob.arrayBuffer());

/** A ZIP file of ``files``: { name, blob }. Nothing is compressed: pictures already are. */
export async function packed(files) {
  const parts = [];
  const list = [];
  let at = 0;
  for (const { name, blob } of files) {
    const [encoded, content] = [new TextEncoder().encode(name), new Uint8Array(await blob.arrayBuffer())];
    // version, flags, method, time and date (1980-01-01), checksum, sizes, length of the name, no extra field
    const about = fields([20, 2], [UTF8, 2], [METHODS.stored, 2], [0, 2], [33, 2], [checksum(content), 4], [content.length, 4], [content.length, 4], [encoded.length, 2], [0, 2]);
    parts.push(fields([LOCAL, 4]), about, encoded, content);
    list.push(fields([ENTRY, 4], [20, 2]), about, fields([0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), encoded);
    at += 4 + about.length + encoded.length + content.length;
  }
  const bytes = list.reduce((sum, part) => sum + part.length, 0);
  const end = fields([END, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [bytes, 4], [at, 4], [0, 2]);
  return new Blob([...parts, ...list, end], { type: "application/zip" });
}

/** Little-endian numbers of 2 or 4 bytes. */
function fields(...numbers) {
  const view = new DataView(new ArrayBuffer(numbers.reduce((sum, [, bytes]) => sum + bytes, 0)));
  let at = 0;
  for (const [value, bytes] of numbers) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return new Uint8Array(view.buffer);
}

const POLYNOMIAL = 0xedb88320;
const CHECKSUMS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1;
  return value;
});

/** CRC-32. */
function checksum(content) {
  let value = 0xffffffff;
  for (const byte of content) value = (value >>> 8) ^ CHECKSUMS[(value ^ byte) & 255];
  return (value ^ 0xffffffff) >>> 0;
}
