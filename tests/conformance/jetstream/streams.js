// A story of streams, a bucket and an object store, told with the published JavaScript clients of JetStream alone. Each step becomes
// one JSON line: its name, and what the client has got, or the error.
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

async function all (list, pick) {
  const found = []
  for await (const one of list) {
    found.push(pick(one))
  }
  return found
}

const stored = (message) => message && [message.subject, message.seq, message.string()]
const entry = (found) => found && [found.key, found.revision, found.operation, found.string()]
const held = ({ state }) => [state.messages, state.first_seq, state.last_seq]

async function streams (js, manager) {
  await step('add', async () => held(await manager.streams.add({ name: 'ORDERS', subjects: ['orders.*'], allow_direct: true })))
  await step('publish', () => js.publish('orders.new', 'one', { msgID: 'id 1' }))
  await step('publish again', () => js.publish('orders.new', 'one', { msgID: 'id 1' }))
  await step('publish to another stream', () => js.publish('orders.new', 'x', { expect: { streamName: 'OTHER' } }))
  await step('publish behind another message', () => js.publish('orders.new', 'x', { expect: { lastSequence: 7 } }))
  await step('publish behind the last', () => js.publish('orders.old', 'two', { expect: { lastSequence: 1 } }))
  await step('publish behind a subject', () => js.publish('orders.new', 'three', { expect: { lastSubjectSequence: 1 } }))
  await step('get', async () => stored(await manager.streams.getMessage('ORDERS', { seq: 2 })))
  await step('get the last', async () => stored(await manager.streams.getMessage('ORDERS', { last_by_subj: 'orders.new' })))
  await step('get nothing', async () => stored(await manager.streams.getMessage('ORDERS', { seq: 99 })))
  await step('get directly', async () => stored(await manager.direct.getMessage('ORDERS', { last_by_subj: 'orders.new' })))
  await step('count', async () => (await manager.streams.info('ORDERS', { subjects_filter: '>' })).state.subjects)
  await step('update', async () => (await manager.streams.update('ORDERS', { subjects: ['orders.*', 'more'] })).config.subjects)
  await step('names', () => all(manager.streams.names(), (name) => name))
  await step('list', () => all(manager.streams.list(), held))
  await step('find', () => manager.streams.find('orders.new'))
  await step('delete a message', () => manager.streams.deleteMessage('ORDERS', 2))
  await step('purge', async () => (await manager.streams.purge('ORDERS', { filter: 'orders.new', keep: 1 })).purged)
  await step('info', async () => held(await manager.streams.info('ORDERS')))
  await step('delete', () => manager.streams.delete('ORDERS'))
  await step('delete again', () => manager.streams.delete('ORDERS'))
}

async function bucket (js) {
  const kv = await new Kvm(js).create('BUCKET')
  await step('put', () => kv.put('k', '1'))
  await step('update', () => kv.update('k', '2', 1))
  await step('update what has changed', () => kv.update('k', '3', 1))
  await step('create', () => kv.create('n', '4'))
  await step('create what is there', () => kv.create('n', '5'))
  await step('get', async () => entry(await kv.get('k')))
  await step('get an earlier revision', async () => entry(await kv.get('k', { revision: 1 })))
  await step('delete', () => kv.delete('k'))
  await step('get what is deleted', async () => entry(await kv.get('k')))
  await step('create again', () => kv.create('k', '6'))
  await step('purge', () => kv.purge('n'))
  await step('get what is purged', async () => entry(await kv.get('n')))
  await step('get what never was', async () => entry(await kv.get('q')))
  await step('status', async () => { const told = await kv.status(); return [told.bucket, told.values, told.history] })
  await step('destroy', () => kv.destroy())
}

async function revisions (js) {
  const kv = await new Kvm(js).create('REVISIONS', { history: 3 })
  for (let number = 0; number < 5; number++) {
    await kv.put('k', `${number}`)
    await kv.put('l.m', `${number}`)
  }
  const told = async (options) => all(await kv.history(options), (one) => [one.key, one.revision, one.operation, one.string()])
  await step('history of a key', () => told({ key: 'k' }))
  await step('history of all', () => told({}))
  await step('get the oldest revision', async () => entry(await kv.get('k', { revision: 5 })))
  await step('get one that is gone', async () => entry(await kv.get('k', { revision: 3 })))
  await step('delete with a history', () => kv.delete('k'))
  await step('purge with a history', () => kv.purge('l.m'))
  await step('history with markers', () => told({ key: '>' }))
  await step('keys', async () => all(await kv.keys(), (key) => key))
  await step('status with a history', async () => { const told = await kv.status(); return [told.bucket, told.values, told.history] })
  await step('purge the markers', () => kv.purgeDeletes(0))
  await step('history without markers', () => told({ key: '>' }))
  await step('destroy with a history', () => kv.destroy())
}

async function objects (js) {
  const store = await new Objm(js).create('OBJECTS')
  const size = async () => { const told = await store.status(); return told.streamInfo.state.messages }
  await step('put an object', async () => { const told = await store.putBlob({ name: 'a' }, new Uint8Array(300000)); return [told.size, told.chunks] })
  await step('put it again', async () => { const told = await store.putBlob({ name: 'a' }, new Uint8Array(200000)); return [told.size, told.chunks] })
  await step('messages', size)
  await step('delete the object', async () => (await store.delete('a')).purged)
  await step('messages left', size)
  await step('destroy the store', () => store.destroy())
}

async function main () {
  const connection = await connect({ servers: process.argv[2] })
  const js = jetstream(connection)
  await streams(js, await jetstreamManager(connection))
  await bucket(js)
  await revisions(js)
  await objects(js)
  await connection.close()
}

main()
