// A story of consumers, of watchers of a bucket, and of readers of objects, told with the published JavaScript clients of JetStream
// alone, as streams.js tells its own.
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

async function some (list, count, pick) {
  const found = []
  for await (const one of list) {
    found.push(await pick(one))
    if (found.length === count) {
      break
    }
  }
  return found
}

// How many are pending with a filter is told by subjects here, so it is compared alone if there are any.
const seen = (message) => [message.subject, message.seq, message.string(), message.info.deliveryCount, message.info.pending > 0]
const entry = (found) => [found.key, found.revision, found.operation, found.string()]

async function consumers (js, manager) {
  await manager.streams.add({ name: 'WORK', subjects: ['work.*'] })
  for (let number = 0; number < 20; number++) {
    await js.publish(`work.${number % 3}`, String(number))
  }
  await step('ordered', async () => some(await (await js.consumers.get('WORK')).fetch({ max_messages: 5, expires: 2000 }), 5, seen))
  await step('ordered, by subject', async () => {
    const consumer = await js.consumers.get('WORK', { filter_subjects: ['work.1'] })
    return some(await consumer.consume({ max_messages: 5 }), 7, seen)
  })
  await manager.consumers.add('WORK', { durable_name: 'worker', ack_policy: 'explicit' })
  const worker = await js.consumers.get('WORK', 'worker')
  await step('acked', async () => some(await worker.consume(), 12, async (message) => [message.seq, await message.ackAck()]))
  await step('refused', async () => {
    const message = await worker.next({ expires: 2000 })
    message.nak()
    return seen(message)
  })
  await step('again', async () => {
    const message = await worker.next({ expires: 2000 })
    await message.ackAck()
    return seen(message).slice(0, 4)
  })
  await step('state', async () => {
    const told = await worker.info()
    return [told.num_pending, told.num_ack_pending, told.ack_floor.stream_seq, told.delivered.stream_seq]
  })
  await step('names', () => some(manager.consumers.list('WORK'), 9, (told) => told.name.length > 6 ? 'made up' : told.name).then((names) => names.filter((name) => name !== 'made up')))
  await step('delete', () => manager.consumers.delete('WORK', 'worker'))
  await step('gone', () => manager.consumers.info('WORK', 'worker'))
}

async function watchers (js) {
  const kv = await new Kvm(js).create('WATCHED')
  for (let number = 0; number < 5; number++) {
    await kv.put(`k${number % 3}`, String(number))
  }
  await kv.delete('k0')
  await step('keys', async () => (await some(await kv.keys(), 9, (key) => key)).sort())
  await step('history', async () => some(await kv.history(), 9, entry))
  await step('watch', async () => {
    const watch = await kv.watch()
    const first = await some(watch, 3, entry)
    return first
  })
  await step('watch what changes', async () => {
    const watch = await kv.watch({ include: 'updates' })
    await kv.put('k1', 'new')
    return some(watch, 1, entry)
  })
  await step('purge what is deleted', async () => (await kv.purgeDeletes(0)).success)
  await step('keys that are left', async () => (await some(await kv.keys(), 9, (key) => key)).sort())
}

async function readers (js) {
  const store = await new Objm(js).create('READ')
  await store.putBlob({ name: 'a' }, new Uint8Array(300000).fill(7))
  await step('read an object', async () => {
    const data = await store.getBlob('a')
    return [data.length, data[0], data[299999]]
  })
  await step('list objects', async () => (await store.list()).map((told) => [told.name, told.size]))
}

async function main () {
  const connection = await connect({ servers: process.argv[2] })
  const js = jetstream(connection)
  await consumers(js, await jetstreamManager(connection))
  await watchers(js)
  await readers(js)
  await connection.close()
}

main()
