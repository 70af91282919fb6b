// Perfetto's trace processor (WebAssembly) behind a Unix socket, as `trace_processor server unix`
// is: what Perfetto's Python package sends reaches the program, and its replies go back.
//
//     node trace_processor.mjs FOLDER SOCKET
//
// FOLDER holds engine_bundle.node.js and trace_processor.wasm. "ready" is printed when the socket
// is there; the program ends when its standard input does.

import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import vm from "node:vm";

const [folder, socket] = process.argv.slice(2);

/** What a browser's worker would have: the engine runs in one, and refuses to run elsewhere. */
class LocalRequest {
  open(_method, url) {
    this.path = `${folder}/${url.split("/").pop()}`;
  }
  send() {
    const { buffer, byteOffset, length } = readFileSync(this.path);
    this.response = buffer.slice(byteOffset, byteOffset + length);
  }
}
const told = { log: console.error, warn: console.error, error: console.error };
const worker = {
  TextDecoder,
  TextEncoder,
  URL,
  XMLHttpRequest: LocalRequest,
  WorkerGlobalScope: class {},
  console: told,
  crypto,
  location: { href: "http://localhost/engine_bundle.node.js" },
  performance,
  queueMicrotask,
  setTimeout,
};
worker.self = worker;
// In a realm of its own: the engine tells arrays and errors by their classes.
const realm = vm.createContext(worker);
vm.runInContext(readFileSync(`${folder}/engine_bundle.node.js`, "utf8"), realm);
const Bytes = vm.runInContext("Uint8Array", realm);

let reply = () => {};
const port = { onmessage: null, postMessage: (bytes) => reply(Buffer.from(bytes)) };
worker.onmessage({ data: port });

const server = createServer((client) => {
  reply = (bytes) => client.write(bytes);
  client.on("data", (bytes) => port.onmessage({ data: new Bytes(bytes) }));
});
// The engine hears nothing until what it has begun is done.
setTimeout(() => server.listen(socket, () => console.log("ready")), 0);
process.stdin.on("end", () => process.exit(0)).resume();
