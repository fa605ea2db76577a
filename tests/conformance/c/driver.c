// A STAN client on a leash: obeys the lines on its standard input, tells what happens as JSON lines on its standard output.
//
// Made of the published C client alone (Debian's libnats-dev, link with -lnats -lpthread); knows nothing of our broker.
// The commands and events are described in ../clients.py. Its twin is ../js/driver.js.

#define NATS_HAS_STREAMING  // the header hides the streaming half otherwise
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX (1 << 20)  // a command with a payload of half a megabyte, in hexadecimal
#define SUBSCRIPTIONS_MAX 64

typedef struct Held {
    stanMsg *msg;
    struct Held *next;
} Held;

typedef struct {
    char name[64];
    stanSubscription *sub;
    Held *held;  // messages that are not acked yet; guarded by `lock`
} Subscription;

static stanConnection *connection;
static Subscription subscriptions[SUBSCRIPTIONS_MAX];
static int subscription_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // `held`, and one event a line

static void check(natsStatus status, const char *doing) {
    if (status != NATS_OK) {
        fprintf(stderr, "%s: %s\n", doing, natsStatus_GetText(status));
        exit(2);
    }
}

static const char *error_text(natsStatus status) {
    natsStatus last = NATS_OK;
    const char *text = nats_GetLastError(&last);
    const char *place = "): ";  // "(stan/conn.c:466): text"
    if (status == NATS_OK) return "";
    if (text == NULL || *text == '\0') return natsStatus_GetText(status);
    return *text == '(' && strstr(text, place) ? strstr(text, place) + strlen(place) : text;
}

// --- events ---------------------------------------------------------------------------------------------------------

static void begin(const char *event) {
    pthread_mutex_lock(&lock);
    printf("{\"event\": \"%s\"", event);
}

static void add_text(const char *key, const char *text) {
    printf(", \"%s\": \"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void add_hex(const char *key, const unsigned char *data, int length) {
    printf(", \"%s\": \"", key);
    for (int i = 0; i < length; i++) printf("%02x", data[i]);
    putchar('"');
}

static void end(void) {
    printf("}\n");
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void tell_of(const char *event, const Subscription *of, natsStatus status) {
    begin(status == NATS_OK ? event : "failed");
    add_text("sub", of->name);
    if (status != NATS_OK) add_text("error", error_text(status));
    end();
}

static void on_acked(const char *guid, const char *error, void *closure) {
    char *hex = strchr(closure, ' ');  // "channel hex"
    *hex++ = '\0';
    begin("acked");
    add_text("channel", closure);
    add_text("data", hex);
    add_text("guid", guid);
    add_text("error", error ? error : "");
    end();
    free(closure);
}

static void on_message(stanConnection *sc, stanSubscription *sub, const char *channel, stanMsg *msg, void *closure) {
    (void)sc, (void)sub, (void)channel;
    Subscription *of = closure;
    Held *held = malloc(sizeof *held);
    begin("message");
    *held = (Held){msg, of->held};
    of->held = held;
    add_text("sub", of->name);
    printf(", \"sequence\": %llu", (unsigned long long)stanMsg_GetSequence(msg));
    add_hex("data", (const unsigned char *)stanMsg_GetData(msg), stanMsg_GetDataLength(msg));
    printf(", \"redelivered\": %s, \"count\": null", stanMsg_IsRedelivered(msg) ? "true" : "false");
    printf(", \"timestamp\": %lld", (long long)stanMsg_GetTimestamp(msg));
    end();
}

static void on_lost(stanConnection *sc, const char *error, void *closure) {
    (void)sc, (void)closure;
    begin("connection_lost");
    add_text("error", error ? error : "");
    end();
}

static void on_reconnected(natsConnection *nc, void *closure) {
    (void)nc, (void)closure;
    begin("reconnected");
    end();
}

// --- commands -------------------------------------------------------------------------------------------------------

static void publish(const char *channel, const char *hex) {
    size_t length = strlen(hex) / 2;
    unsigned char *data = malloc(length + 1);
    char *closure = malloc(strlen(channel) + strlen(hex) + 2);
    sprintf(closure, "%s %s", channel, hex);
    for (size_t i = 0; i < length; i++) sscanf(hex + 2 * i, "%2hhx", &data[i]);
    natsStatus status = stanConnection_PublishAsync(connection, channel, data, (int)length, on_acked, closure);
    if (status != NATS_OK) on_acked("", error_text(status), closure);
    free(data);
}

static void start_at(stanSubOptions *options, const char *start) {
    const char *colon = strchr(start, ':');
    long long argument = colon ? atoll(colon + 1) : 0;
    if (!strcmp(start, "last")) check(stanSubOptions_StartWithLastReceived(options), start);
    else if (!strcmp(start, "first")) check(stanSubOptions_DeliverAllAvailable(options), start);
    else if (!strncmp(start, "sequence:", 9)) check(stanSubOptions_StartAtSequence(options, argument), start);
    else if (!strncmp(start, "delta:", 6)) check(stanSubOptions_StartAtTimeDelta(options, argument), start);
    else if (strcmp(start, "new")) check(NATS_INVALID_ARG, start);
}

static void subscribe(char *name, char *channel, char **rest) {
    if (subscription_count == SUBSCRIPTIONS_MAX) check(NATS_ERR, "too many subscriptions");
    Subscription *of = &subscriptions[subscription_count++];
    snprintf(of->name, sizeof of->name, "%s", name);
    stanSubOptions *options;
    const char *queue = NULL;
    check(stanSubOptions_Create(&options), "options");
    for (char *word; (word = strtok_r(NULL, " ", rest)) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL) check(NATS_INVALID_ARG, word);
        *value++ = '\0';
        if (!strcmp(word, "queue")) queue = value;
        else if (!strcmp(word, "durable")) check(stanSubOptions_SetDurableName(options, value), word);
        else if (!strcmp(word, "start")) start_at(options, value);
        else if (!strcmp(word, "ack_wait")) check(stanSubOptions_SetAckWait(options, atoll(value)), word);
        else if (!strcmp(word, "max_in_flight")) check(stanSubOptions_SetMaxInflight(options, atoi(value)), word);
        else if (!strcmp(word, "manual")) check(stanSubOptions_SetManualAckMode(options, true), word);
        else check(NATS_INVALID_ARG, word);
    }
    natsStatus status =
        queue ? stanConnection_QueueSubscribe(&of->sub, connection, channel, queue, on_message, of, options)
              : stanConnection_Subscribe(&of->sub, connection, channel, on_message, of, options);
    tell_of("subscribed", of, status);
    stanSubOptions_Destroy(options);
}

static Subscription *named(const char *name) {
    for (int i = subscription_count; i-- > 0;)  // the newest of that name
        if (!strcmp(subscriptions[i].name, name)) return &subscriptions[i];
    check(NATS_INVALID_ARG, name);
    return NULL;
}

static void tell_ack(const char *event, Subscription *of, unsigned long long sequence) {
    begin(event);
    add_text("sub", of->name);
    printf(", \"sequence\": %llu", sequence);
    end();
}

static void ack(Subscription *of, unsigned long long sequence) {
    pthread_mutex_lock(&lock);
    Held *held = of->held;
    while (held && stanMsg_GetSequence(held->msg) != sequence) held = held->next;
    pthread_mutex_unlock(&lock);
    if (held == NULL) check(NATS_INVALID_ARG, "ack of a message that has not come");
    tell_ack("acking", of, sequence);
    check(stanSubscription_AckMsg(of->sub, held->msg), "ack");
    tell_ack("ack_sent", of, sequence);
}

static void disconnect(void) {
    natsStatus status = stanConnection_Close(connection);
    begin("disconnected");
    add_text("error", error_text(status));
    end();
    exit(0);
}

static void obey(char *line) {
    char *rest;
    const char *command = strtok_r(line, " ", &rest);
    char *first = strtok_r(NULL, " ", &rest);
    if (!strcmp(command, "disconnect")) disconnect();
    if (first == NULL) check(NATS_INVALID_ARG, command);
    if (!strcmp(command, "publish")) publish(first, rest);
    else if (!strcmp(command, "subscribe")) subscribe(first, strtok_r(NULL, " ", &rest), &rest);
    else if (!strcmp(command, "ack")) ack(named(first), strtoull(rest, NULL, 10));
    else if (!strcmp(command, "unsubscribe")) tell_of("unsubscribed", named(first), stanSubscription_Unsubscribe(named(first)->sub));
    else if (!strcmp(command, "close")) tell_of("closed", named(first), stanSubscription_Close(named(first)->sub));
    else check(NATS_INVALID_ARG, command);
}

static void join(char **argv) {
    natsOptions *nats;
    stanConnOptions *options;
    check(natsOptions_Create(&nats), "nats options");
    check(natsOptions_SetURL(nats, argv[1]), "url");
    check(natsOptions_SetMaxReconnect(nats, -1), "reconnects");
    check(natsOptions_SetReconnectWait(nats, 50), "reconnect wait");
    check(natsOptions_SetReconnectedCB(nats, on_reconnected, NULL), "reconnected");
    check(stanConnOptions_Create(&options), "options");
    check(stanConnOptions_SetNATSOptions(options, nats), "nats options");
    check(stanConnOptions_SetMaxPubAcksInflight(options, 16384, 1.0F), "publishes in flight");
    check(stanConnOptions_SetPings(options, atoi(argv[4]), atoi(argv[5])), "pings");
    check(stanConnOptions_SetConnectionWait(options, 1000 * atoi(argv[6])), "patience");
    check(stanConnOptions_SetConnectionLostHandler(options, on_lost, NULL), "lost handler");
    natsStatus status = stanConnection_Connect(&connection, argv[2], argv[3], options);
    begin(status == NATS_OK ? "connected" : "refused");
    if (status != NATS_OK) add_text("error", error_text(status));
    end();
    if (status != NATS_OK) exit(1);
    stanConnOptions_Destroy(options);
    natsOptions_Destroy(nats);
}

int main(int argc, char **argv) {
    static char line[LINE_BYTES_MAX];
    if (argc != 7) return 2;
    join(argv);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    return 0;
}
