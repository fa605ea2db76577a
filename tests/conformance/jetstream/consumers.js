// A story of consumers, told with the published JavaScript clients of JetStream alone, as in streams.js.
'use strict'

const { connect } = require('@nats-io/transport-node')
const { jetstream, jetstreamManager } = require('@nats-io/jetstream')
const { Kvm } = require('@nats-io/kv')
const { Objm } = require('@nats-io/obj')

async function step (name, call) {
  let told
  try {
    told = await call()
  } catch (error) {
    told = { error: error.message, code: error.code }
  }
  process.stdout.write(JSON.stringify([name, told === undefined ? null : told]) + '\n')
}

const got = (message) => message && [message.subject, message.seq, message.info.deliveryCount, message.string()]

async function take (messages, count, treat = (message) => message.ackAck()) {
  const found = []
  for await (const message of messages) {
    found.push(got(message))
    await treat(message)
    if (found.length === count) {
      break
    }
  }
  return found
}

const shown = (info) => [info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq, info.num_waiting]

async function pulled (js, manager) {
  await manager.streams.add({ name: 'ORDERS', subjects: ['orders.*'] })
  for (let number = 1; number <= 6; number++) {
    await js.publish(`orders.${number % 2}`, `${number}`)
  }
  await step('add', async () => (await manager.consumers.add('ORDERS', { durable_name: 'worker', ack_policy: 'explicit', ack_wait: 1e9 })).name)
  const worker = await js.consumers.get('ORDERS', 'worker')
  await step('next', async () => { const one = await worker.next({ expires: 2000 }); await one.ackAck(); return got(one) })
  await step('fetch', async () => take(await worker.fetch({ max_messages: 2, expires: 2000 }), 2))
  await step('info', async () => shown(await worker.info()))
  await step('consume', async () => { const messages = await worker.consume({ max_messages: 10 }); return take(messages, 2) })
  await step('nak', async () => { const one = await worker.next({ expires: 2000 }); one.nak(); return got(one) })
  await step('again', async () => { const one = await worker.next({ expires: 5000 }); one.term('enough'); return got(one) })
  await step('nothing', async () => got(await worker.next({ expires: 1000 })))
  await step('pause', async () => { const told = await manager.consumers.pause('ORDERS', 'worker', new Date(Date.now() + 3600e3)); return told.paused })
  await step('resume', async () => (await manager.consumers.resume('ORDERS', 'worker')).paused)
  await step('update', async () => (await manager.consumers.update('ORDERS', 'worker', { max_deliver: 7 })).config.max_deliver)
  await step('delete', () => manager.consumers.delete('ORDERS', 'worker'))
  await step('gone', async () => (await js.consumers.get('ORDERS', 'worker')).info())
}

async function ordered (js) {
  const all = await js.consumers.get('ORDERS')
  await step('ordered', async () => take(await all.consume(), 6, () => {}))
  const some = await js.consumers.get('ORDERS', { filter_subjects: ['orders.1'] })
  await step('ordered, filtered', async () => take(await some.consume(), 3, () => {}))
  const last = await js.consumers.get('ORDERS', { deliver_policy: 'last_per_subject', filter_subjects: ['orders.0', 'orders.1'] })
  await step('newest of each subject', async () => take(await last.consume(), 2, () => {}))
}

async function pushed (js, manager, connection) {
  await step('add a pushing one', async () => (await manager.consumers.add('ORDERS', {
    durable_name: 'pusher', ack_policy: 'explicit', deliver_subject: 'to.me', idle_heartbeat: 5e8, flow_control: true
  })).config.deliver_subject)
  const pusher = await js.consumers.getPushConsumer('ORDERS', 'pusher')
  await step('pushed', async () => take(await pusher.consume(), 6))
  await step('pushing', async () => shown(await pusher.info(false)))
}

async function buckets (js) {
  const kv = await new Kvm(js).create('BUCKET')
  await kv.put('a', '1')
  await kv.put('b', '2')
  await kv.put('a', '3')
  await step('keys', async () => { const found = []; for await (const key of await kv.keys()) { found.push(key) } return found.sort() })
  await step('watch', async () => {
    const found = []
    for await (const entry of await kv.watch()) {
      found.push([entry.key, entry.revision, entry.string(), entry.delta])
      if (found.length === 2) {
        break
      }
    }
    return found
  })
  await step('history', async () => { const found = []; for await (const entry of await kv.history({ key: 'a' })) { found.push(entry.string()) } return found })
}

async function objects (js) {
  const store = await new Objm(js).create('OBJECTS')
  await store.putBlob({ name: 'file' }, new Uint8Array(300000).fill(7))
  await step('get an object', async () => { const blob = await store.getBlob('file'); return [blob.length, blob[299999]] })
  await step('list objects', async () => (await store.list()).map((one) => one.name))
}

async function main () {
  const connection = await connect({ servers: process.argv[2] })
  const js = jetstream(connection)
  const manager = await jetstreamManager(connection)
  await pulled(js, manager)
  await ordered(js)
  await pushed(js, manager, connection)
  await buckets(js)
  await objects(js)
  await connection.close()
}

main()
