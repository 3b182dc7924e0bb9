// usage: node peer-write.mjs pi|dm INSTALLED PAYLOAD
//
// Performs batches of writes with the atomic JSON writer of one published peer. PAYLOAD is a JSON file. It
// says `ready`; then for each line `N FILE` of its standard input it writes the payload N times to FILE
// with mode 0600, for a line `N ` it makes the text N times, and answers with the nanoseconds of one.
import * as fs from "node:fs";
import { createInterface } from "node:readline";
import { loadPeer } from "../conformance/peers/load.mjs";

const [name, installed, payloadFile] = process.argv.slice(2);
const peer = await loadPeer(name, installed, installed);
const payload = JSON.parse(fs.readFileSync(payloadFile, "utf8"));
const write = peer.json.createAtomicJsonWriter({ mode: 0o600 });
// Kept, so that making it is not found to be of no use.
let length = 0;
const make = () => { length += JSON.stringify(payload, null, 2).length; };

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
	const space = line.indexOf(" ");
	const count = Number(line.slice(0, space));
	const file = line.slice(space + 1);
	const begin = process.hrtime.bigint();
	for (let i = 0; i < count; i++) file ? write(file, payload) : make();
	console.log(Number(process.hrtime.bigint() - begin) / count);
}
if (length < 0) process.exitCode = 1;
