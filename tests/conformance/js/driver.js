// A STAN client on a leash: obeys the lines on its standard input, tells what happens as JSON lines on its standard output.
//
// Made of the published JavaScript client alone (npm node-nats-streaming); knows nothing of our broker.
// The commands and events are described in ../clients.py. Its twin is ../c/driver.c.
'use strict'

const readline = require('readline')
const STAN = require('node-nats-streaming')

const [url, cluster, client, pingInterval, pingMaxOut, patience] = process.argv.slice(2)
const subscriptions = new Map() // name -> { sub, held: Map(sequence -> message) }

function tell (event, fields) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
}

// The client hands out an Error here, the server's plain text there, or nothing.
function text (error) {
  return error ? error.message || String(error) : ''
}

const connection = STAN.connect(cluster, client, {
  url,
  maxReconnectAttempts: -1,
  reconnectTimeWait: 50,
  stanPingInterval: Number(pingInterval) * 1000,
  stanMaxPingOut: Number(pingMaxOut),
  connectTimeout: Number(patience) * 1000
})

function options (settings) {
  const found = connection.subscriptionOptions()
  const [start, argument] = (settings.start || 'new').split(':')
  switch (start) {
    case 'new': found.setStartAt(STAN.StartPosition.NEW_ONLY); break
    case 'last': found.setStartWithLastReceived(); break
    case 'first': found.setDeliverAllAvailable(); break
    case 'sequence': found.setStartAtSequence(Number(argument)); break
    case 'delta': found.setStartAtTimeDelta(Number(argument)); break
    default: throw new Error('unknown start ' + start)
  }
  if (settings.durable) found.setDurableName(settings.durable)
  if (settings.ack_wait) found.setAckWait(Number(settings.ack_wait))
  if (settings.max_in_flight) found.setMaxInFlight(Number(settings.max_in_flight))
  found.setManualAckMode(Boolean(settings.manual))
  return found
}

const commands = {
  publish (channel, hex) {
    connection.publish(channel, Buffer.from(hex || '', 'hex'), (error, guid) => {
      tell('acked', { channel, data: hex || '', guid, error: text(error) })
    })
  },

  subscribe (name, channel, ...words) {
    const settings = Object.fromEntries(words.map((word) => word.split('=')))
    const chosen = options(settings)
    const sub = settings.queue ? connection.subscribe(channel, settings.queue, chosen) : connection.subscribe(channel, chosen)
    const held = new Map()
    subscriptions.set(name, { sub, held })
    sub.on('ready', () => tell('subscribed', { sub: name }))
    sub.on('error', (error) => tell('failed', { sub: name, error: text(error) }))
    sub.on('timeout', (error) => tell('failed', { sub: name, error: text(error) }))
    sub.on('unsubscribed', () => tell('unsubscribed', { sub: name }))
    sub.on('closed', () => tell('closed', { sub: name }))
    sub.on('message', (message) => {
      held.set(message.getSequence(), message)
      tell('message', {
        sub: name,
        sequence: message.getSequence(),
        data: message.getRawData().toString('hex'),
        redelivered: message.isRedelivered(),
        count: message.getRedeliveryCount(),
        timestamp: message.getTimestampRaw()
      })
    })
  },

  ack (name, sequence) {
    tell('acking', { sub: name, sequence: Number(sequence) })
    subscriptions.get(name).held.get(Number(sequence)).ack()
    tell('ack_sent', { sub: name, sequence: Number(sequence) })
  },

  unsubscribe (name) { subscriptions.get(name).sub.unsubscribe() },

  close (name) { subscriptions.get(name).sub.close() },

  disconnect () {
    connection.removeAllListeners('close') // it is told once for STAN and once for NATS
    connection.once('close', (error) => {
      tell('disconnected', { error: text(error) })
      process.exit(0)
    })
    connection.close()
  }
}

connection.on('error', (error) => tell('refused', { error: text(error) }))
connection.on('connection_lost', (error) => tell('connection_lost', { error: text(error) }))
connection.on('reconnect', () => tell('reconnected', {}))
connection.once('connect', () => {
  tell('connected', {})
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', (line) => {
    const [command, ...words] = line.split(' ')
    commands[command](...words)
  })
  lines.on('close', () => process.exit(0))
})
