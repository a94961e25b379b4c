// A worker without toolsd's runtime: it speaks the worker link itself (workers/PROTOCOL.md), with nothing but what node
// brings. Copy it, or read it beside the protocol and write it again in your language.
//
// Top to bottom: the tools; the life of the worker; messages; frames on the socket (ZMTP); msgpack.

import fs from "node:fs";
import net from "node:net";

// --- the tools ------------------------------------------------------------------------------------------------------

const text = (name) => ({ type: "object", properties: { [name]: { type: "string" } }, required: [name] });

const tools = {
  upper: {
    description: "Write a text in capital letters.",
    parameters: text("text"),
    run: ({ text }) => text.toUpperCase(),
  },
  count: {
    description: "Count the words of a text, and say how often each occurs.",
    parameters: text("text"),
    run: ({ text }) => {
      const found = {};
      for (const word of text.match(/\p{L}+/gu) ?? []) found[word] = (found[word] ?? 0) + 1;
      return found;
    },
  },
  wait: {
    description: "Wait some seconds.",
    parameters: { type: "object", properties: { seconds: { type: "number" } }, required: ["seconds"] },
    run: ({ seconds }, signal) =>
      new Promise((done, failed) => {
        const timer = setTimeout(() => done(`waited ${seconds} s`), seconds * 1000);
        signal.addEventListener("abort", () => (clearTimeout(timer), failed(signal.reason)));
      }),
  },
};

// --- the life of the worker: greet, offer, answer batches, leave ----------------------------------------------------

const running = new Map(); // batch -> AbortController

function live(send) {
  send("H", { versions: [1], name: "raw", pid: process.pid });
  const offered = Object.entries(tools).map(([name, { description, parameters }]) => ({ name, description, parameters }));
  send("Y", { tools: offered });
  return (kind, header, frames) => {
    if (kind === "b") runBatch(header, frames, send);
    else if (kind === "x") running.get(header.batch)?.abort();
    else if (kind === "z") send("B", {}, () => process.exit(0));
    else if (kind === "X") process.exit(76);
    // Whatever else comes is of a later version.
  };
}

async function runBatch({ batch, calls, region = 0 }, frames, send) {
  const stop = new AbortController();
  running.set(batch, stop);
  recorder.begin(region, batch, calls.length);
  const filled = [];
  const large = [];
  for (const [slot, [, name, given]] of calls.entries()) {
    if (stop.signal.aborted) break;
    const raw = typeof given === "number" ? frames[given].toString() : given;
    recorder.started(region, slot);
    const outcome = await runCall(name, raw, stop.signal);
    recorder.finished(region, slot);
    filled.push([slot, outcome.length > 32768 ? large.push(outcome) - 1 : outcome]);
  }
  running.delete(batch);
  const stopped = { code: "turn_cancelled", message: "stopped when it was asked to", cause: "stopped" };
  if (stop.signal.aborted) send("D", { batch, failure: stopped });
  else send("D", { batch, results: filled }, undefined, large);
}

async function runCall(name, raw, signal) {
  let given;
  try {
    given = raw.trim() === "" ? {} : JSON.parse(raw);
  } catch (error) {
    return slotError("arguments_malformed", `The arguments are no JSON: ${error.message}. Send one JSON object.`);
  }
  const misfit = misfitOf(given, tools[name].parameters);
  if (misfit) return slotError("arguments_invalid", misfit);
  try {
    const result = await tools[name].run(given, signal);
    return typeof result === "string" ? Buffer.from("t" + result) : Buffer.from("j" + JSON.stringify(result));
  } catch (error) {
    return slotError("tool_error", String(error?.message ?? error));
  }
}

// As much of JSON schema as these tools use. A worker for many tools would bring a validator.
function misfitOf(given, { properties, required }) {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return "$: expected an object";
  for (const name of required) if (!(name in given)) return `$.${name}: expected ${properties[name].type}, got nothing`;
  for (const [name, value] of Object.entries(given)) {
    if (!(name in properties)) return `$.${name}: no such argument; there are ${Object.keys(properties).join(", ")}`;
    if (typeof value !== properties[name].type) return `$.${name}: expected ${properties[name].type}`;
  }
}

const slotError = (code, message) => Buffer.from("e" + JSON.stringify({ code, message }));

// --- the flight recorder: what survives our death -------------------------------------------------------------------

const recorder = {
  fd: Number(process.env.TOOLSD_RECORDER),
  sent: 0n,
  word(at, value) {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    fs.writeSync(this.fd, bytes, 0, 8, at);
  },
  at: (region) => 4096 + region * (4096 + 16384),
  begin(region, batch, count) {
    const at = this.at(region);
    this.word(at, 0);
    fs.writeSync(this.fd, Buffer.alloc(Math.min(count, 16384)), 0, Math.min(count, 16384), at + 64);
    this.word(at + 8, count);
    this.word(at + 24, 0);
    this.word(at + 16, process.hrtime.bigint());
    this.word(at, batch + 1);
  },
  started(region, slot) {
    if (slot < 16384) fs.writeSync(this.fd, Buffer.from([1]), 0, 1, this.at(region) + 64 + slot);
    this.word(this.at(region) + 32, process.hrtime.bigint());
    this.word(this.at(region) + 24, slot + 1);
  },
  finished(region, slot) {
    if (slot < 16384) fs.writeSync(this.fd, Buffer.from([2]), 0, 1, this.at(region) + 64 + slot);
  },
  sending() {
    this.word(16, ++this.sent);
  },
};

// --- frames on the socket: ZMTP 3 with the NULL mechanism -----------------------------------------------------------

const GREETING = Buffer.alloc(64);
GREETING.set([0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, ...Buffer.from("NULL")]);
const READY = Buffer.from("\x05READY\x0bSocket-Type\0\0\0\x06DEALER");

function frame(body, flags) {
  if (body.length < 256) return Buffer.concat([Buffer.from([flags, body.length]), body]);
  const head = Buffer.alloc(9);
  head[0] = flags | 2;
  head.writeBigUInt64BE(BigInt(body.length), 1);
  return Buffer.concat([head, body]);
}

function serve(socket) {
  const send = (kind, header, then, frames = []) => {
    recorder.sending();
    const parts = [Buffer.concat([Buffer.from(kind), pack(header)]), ...frames];
    parts.forEach((part, i) => socket.write(frame(part, i < parts.length - 1 ? 1 : 0), i < parts.length - 1 ? undefined : then));
  };
  let handle;
  let parts = [];
  const take = (flags, body) => {
    if (flags & 4) {
      if (body.subarray(0, 6).toString() === "\x05READY") handle = live(send);
      else if (body.subarray(0, 5).toString() === "\x04PING") socket.write(frame(Buffer.from("\x04PONG" + body.subarray(7).toString("latin1"), "latin1"), 4));
      else throw new Error("the peer refused the handshake");
      return;
    }
    parts.push(body);
    if (flags & 1) return;
    const [head, ...frames] = parts;
    parts = [];
    handle(String.fromCharCode(head[0]), unpack(head.subarray(1)), frames);
  };
  socket.write(GREETING);
  socket.write(frame(READY, 4));
  let greeted = false;
  let chunks = [];
  let size = 0;
  let wanted = 64;
  socket.on("data", (chunk) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size < wanted) return; // so that 64 MiB are not put together again for each chunk
    let data = Buffer.concat(chunks);
    for (;;) {
      if (!greeted) {
        if (data.length < (wanted = 64)) break;
        if (data[0] !== 0xff || data[9] !== 0x7f || data[10] < 3) throw new Error("the peer speaks no ZMTP 3");
        greeted = true;
        data = data.subarray(64);
      }
      if (data.length < (wanted = data[0] & 2 ? 9 : 2)) break;
      const long = data[0] & 2;
      const length = long ? Number(data.readBigUInt64BE(1)) : data[1];
      const start = long ? 9 : 2;
      if (length > 256 * 1024 * 1024) throw new Error(`a frame of ${length} bytes`);
      if (data.length < (wanted = start + length)) break;
      take(data[0], data.subarray(start, start + length));
      data = data.subarray(start + length);
    }
    chunks = [data];
    size = data.length;
  });
  socket.on("close", () => process.exit(1)); // the node is gone, and nobody else may connect
}

// --- msgpack, the half that the protocol uses -----------------------------------------------------------------------

function pack(value) {
  if (value === null || value === undefined) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === "number" && Number.isInteger(value) && value >= 0) return sized(value, 0x00, 128, [0xcc, 0xcd, 0xce, 0xcf]);
  if (typeof value === "number") {
    const bytes = Buffer.alloc(9, 0xcb);
    bytes.writeDoubleBE(value, 1);
    return bytes;
  }
  if (typeof value === "string") {
    const bytes = Buffer.from(value);
    return Buffer.concat([sized(bytes.length, 0xa0, 32, [0xd9, 0xda, 0xdb]), bytes]);
  }
  if (Buffer.isBuffer(value)) return Buffer.concat([sized(value.length, 0, 0, [0xc4, 0xc5, 0xc6]), value]);
  if (Array.isArray(value)) return Buffer.concat([sized(value.length, 0x90, 16, [null, 0xdc, 0xdd]), ...value.map(pack)]);
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Buffer.concat([sized(entries.length, 0x80, 16, [null, 0xde, 0xdf]), ...entries.flat().map(pack)]);
}

// A number in the head byte itself if it is small, else behind one of the head bytes for 1, 2, 4 and 8 bytes.
function sized(count, fix, fixed, heads) {
  if (count < fixed) return Buffer.from([fix | count]);
  const power = [0x100, 0x10000, 0x100000000, Infinity].findIndex((bound, i) => count < bound && heads[i]);
  const bytes = Buffer.alloc(1 + 2 ** power);
  bytes[0] = heads[power];
  if (power === 3) bytes.writeBigUInt64BE(BigInt(count), 1);
  else bytes.writeUIntBE(count, 1, 2 ** power);
  return bytes;
}

function unpack(data) {
  let at = 0;
  const number = (size) => {
    const value = size === 8 ? Number(data.readBigUInt64BE(at)) : data.readUIntBE(at, size);
    at += size;
    return value;
  };
  const bytes = (size) => {
    if (at + size > data.length) throw new Error("a header is cut");
    return data.subarray(at, (at += size));
  };
  const list = (count) => Array.from({ length: count }, value);
  const map = (count) => Object.fromEntries(Array.from({ length: count }, () => [value(), value()]));
  function value() {
    const head = number(1);
    if (head < 0x80) return head;
    if (head < 0x90) return map(head & 15);
    if (head < 0xa0) return list(head & 15);
    if (head < 0xc0) return bytes(head & 31).toString();
    if (head >= 0xe0) return head - 256;
    switch (head) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return bytes(number(2 ** (head - 0xc4)));
      case 0xca: return bytes(4).readFloatBE();
      case 0xcb: return bytes(8).readDoubleBE();
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return number(2 ** (head - 0xcc));
      case 0xd0: return bytes(1).readInt8();
      case 0xd1: return bytes(2).readInt16BE();
      case 0xd2: return bytes(4).readInt32BE();
      case 0xd3: return Number(bytes(8).readBigInt64BE());
      case 0xd9: case 0xda: case 0xdb: return bytes(number(2 ** (head - 0xd9))).toString();
      case 0xdc: case 0xdd: return list(number(2 ** (head - 0xdb)));
      case 0xde: case 0xdf: return map(number(2 ** (head - 0xdd)));
      default: throw new Error(`no msgpack: ${head}`);
    }
  }
  const found = value();
  if (at !== data.length) throw new Error("bytes behind a header");
  return found;
}

net.createServer(serve).listen({ fd: Number(process.env.TOOLSD_LINK) });
