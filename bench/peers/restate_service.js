// SPDX-License-Identifier: MIT
//
// A Restate service that makes one durable call: its step is journaled, and Restate's own idempotency key makes a
// repeat of the request the same invocation.
//
//   node restate_service.js PORT CALLEE_PORT
import http from "node:http";
import http2 from "node:http2";
import process from "node:process";
import * as restate from "@restatedev/restate-sdk";

const [port, calleePort] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1024 });

function create(callId, order) {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify(order);
    const request = http.request(
      { agent, host: "127.0.0.1", port: calleePort, method: "POST", path: "/orders",
        headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body), "x-call-id": callId } },
      (answer) => {
        let text = "";
        answer.on("data", (part) => (text += part));
        answer.on("end", () => resolve({ status: answer.statusCode, body: text }));
        answer.on("error", reject);
      });
    request.on("error", reject);
    request.end(body);
  });
}

const orders = restate.service({
  name: "orders",
  handlers: {
    create: async (context, order) => {
      const callId = context.request().headers.get("x-call-id");
      return context.run("create", () => create(callId, order));
    },
  },
});

http2.createServer(restate.createEndpointHandler({ services: [orders] })).listen(port, "127.0.0.1");
