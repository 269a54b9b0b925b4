// A peer for tests: the official JavaScript client, driven by lines of JSON on standard input, which
// answers in lines of JSON on standard output. `node js_peer.cjs <folder of node_modules> <url>`.
"use strict";
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");
const load = createRequire(process.argv[2] + "/");
const nats = load("@nats-io/transport-node");
const js = load("@nats-io/jetstream");
const kv = load("@nats-io/kv");
const obj = load("@nats-io/obj");
const { ServiceError, Svcm } = load("@nats-io/services");

const say = (document) => process.stdout.write(JSON.stringify(document) + "\n");
const decode = (bytes) => Buffer.from(bytes).toString("utf8");

const fromPairs = (pairs) => {
  if (!pairs) return undefined;
  const h = nats.headers();
  for (const [name, value] of pairs) h.append(name, value);
  return h;
};
const toDict = (h) => {
  const dict = {};
  if (h) for (const name of h.keys()) dict[name] = h.values(name);
  return dict;
};
const shown = (m) => ({ subject: m.subject, data: decode(m.data), headers: toDict(m.headers) });

const entry = (e) =>
  e && {
    key: e.key,
    value: decode(e.value),
    revision: e.revision,
    operation: e.operation,
    delta: e.delta,
    created: e.created.toISOString(),
  };
const running = new Map(); // services by their ids

const plain = (info) => (info && info.info) || info;
const isIterable = (r) => r && typeof r[Symbol.asyncIterator] === "function";

const commands = {
  async listen(nc, { subject, queue }) {
    nc.subscribe(subject, {
      queue,
      callback: (_, m) => say({ on: subject, ...shown(m) }),
    });
    await nc.flush();
    return {};
  },
  async serve(nc, { subject }) {
    nc.subscribe(subject, {
      callback: (_, m) => m.respond("js " + decode(m.data), { headers: m.headers }),
    });
    await nc.flush();
    return {};
  },
  async publish(nc, { subject, data, headers, times = 1 }) {
    for (let i = 0; i < times; i++) nc.publish(subject, data, { headers: fromPairs(headers) });
    await nc.flush();
    return {};
  },
  async request(nc, { subject, data, headers }) {
    const reply = await nc.request(subject, data, { timeout: 5000, headers: fromPairs(headers) });
    return shown(reply);
  },

  // Streams and consumers: configurations as the client understands them, infos as it gives them.
  async stream_add(nc, { config }) {
    const jsm = await js.jetstreamManager(nc);
    return { info: await jsm.streams.add(config) };
  },
  async stream_info(nc, { name }) {
    const jsm = await js.jetstreamManager(nc);
    return { info: await jsm.streams.info(name) };
  },
  async consumer_add(nc, { stream, config }) {
    const jsm = await js.jetstreamManager(nc);
    return { info: await jsm.consumers.add(stream, config) };
  },
  async consumer_info(nc, { stream, name }) {
    const jsm = await js.jetstreamManager(nc);
    return { info: await jsm.consumers.info(stream, name) };
  },

  // Buckets: any method of one, called; entries and keys as lists.
  async kv_create(nc, { bucket, options }) {
    await new kv.Kvm(nc).create(bucket, options);
    return {};
  },
  async kv(nc, { bucket, call, args = [] }) {
    const opened = await new kv.Kvm(nc).open(bucket);
    const result = await opened[call](...args);
    if (isIterable(result)) {
      const list = [];
      for await (const e of result) list.push(typeof e === "string" ? e : entry(e));
      return { result: list };
    }
    if (call === "get") return { result: entry(result) };
    if (call === "status") {
      const { bucket, values, history, ttl, description, compression, markerTTL, storage } = result;
      return { result: { bucket, values, history, ttl, description, compression, markerTTL, storage } };
    }
    return { result };
  },
  async kv_watch(nc, { bucket, options }) {
    const opened = await new kv.Kvm(nc).open(bucket);
    const watch = await opened.watch(options);
    (async () => {
      for await (const e of watch) say({ on: bucket, ...entry(e) });
    })();
    return {};
  },

  // Services: one with endpoints of ours in mind, and any method of the client for services.
  async service_add(nc, { config, group }) {
    const statsHandler = async (endpoint) => ({ of: endpoint.name });
    const service = await new Svcm(nc).add({ ...config, statsHandler });
    const endpoints = service.addGroup(group);
    endpoints.addEndpoint("echo", {
      metadata: { a: "b" },
      handler: (_, m) => m.respond(m.data),
    });
    endpoints.addEndpoint("refuses", {
      handler: (_, m) => m.respondError(409, "refused by js", "body"),
    });
    endpoints.addEndpoint("throws", {
      handler: () => {
        throw new ServiceError(418, "thrown by js");
      },
    });
    const iterated = endpoints.addEndpoint("iterated");
    (async () => {
      for await (const m of iterated) m.respond(m.data);
    })();
    await nc.flush();
    running.set(service.info().id, service);
    return { info: service.info() };
  },
  async service_stop(nc, { id }) {
    await running.get(id).stop();
    return {};
  },
  async services(nc, { call, args = [] }) {
    const list = [];
    const client = new Svcm(nc).client({ strategy: "stall", maxWait: 5000 });
    for await (const answer of await client[call](...args)) list.push(answer);
    return { result: list };
  },
  async service_request(nc, { subject, data }) {
    const reply = await nc.request(subject, data, { timeout: 5000 });
    const error = ServiceError.toServiceError(reply);
    return { data: decode(reply.data), failed: error && { code: error.code, message: error.message } };
  },

  // Object stores: any method of one, called; contents as base64.
  async obj_create(nc, { store, options }) {
    await new obj.Objm(nc).create(store, options);
    return {};
  },
  async obj(nc, { store, call, args = [] }) {
    const objm = new obj.Objm(nc);
    const opened = await objm.open(store);
    switch (call) {
      case "putBlob":
        args[0].headers = fromPairs(args[0].headers);
        return { result: await opened.putBlob(args[0], Buffer.from(args[1], "base64")) };
      case "getBlob": {
        const blob = await opened.getBlob(args[0]);
        return { result: blob && Buffer.from(blob).toString("base64") };
      }
      case "link":
        return { result: plain(await opened.link(args[0], await opened.info(args[1]))) };
      case "linkStore":
        return { result: await opened.linkStore(args[0], await objm.open(args[1])) };
      case "status": {
        const { bucket, description, size, sealed, ttl, replicas, storage, compression } = await opened.status();
        return { result: { bucket, description, size, sealed, ttl, replicas, storage, compression } };
      }
    }
    const result = await opened[call](...args);
    return { result: Array.isArray(result) ? result.map(plain) : plain(result) };
  },
  async obj_watch(nc, { store, options }) {
    const opened = await new obj.Objm(nc).open(store);
    const watch = await opened.watch(options);
    (async () => {
      for await (const info of watch) say({ on: store, info: plain(info) });
    })();
    return {};
  },
};

(async () => {
  const nc = await nats.connect({ servers: process.argv[3] });
  say({ version: load("@nats-io/transport-node/package.json").version });
  for await (const line of createInterface({ input: process.stdin })) {
    const { run, ...options } = JSON.parse(line);
    try {
      say({ done: run, ...(await commands[run](nc, options)) });
    } catch (error) {
      say({ done: run, error: String(error.message) });
    }
  }
  await nc.close();
})().catch((error) => {
  process.stderr.write(String(error) + "\n");
  process.exit(1);
});
