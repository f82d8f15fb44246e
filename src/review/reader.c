/* SPDX-License-Identifier: MIT */
#include "review/reader.h"

#include <ctype.h>

/* A kind is told from this many lines at most. */
#define GUESS_LINES_MAX 5000u

static bool starts(struct slice s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.data, text, n) == 0;
}

static bool contains(struct slice s, const char *text)
{
    return s.len && memmem(s.data, s.len, text, strlen(text)) != NULL;
}

static struct slice first_word(struct slice line)
{
    size_t n = 0;
    while (n < line.len && !strchr(" \t=:(;{", line.data[n]))
        n++;
    return slice_of(line.data, n);
}

static bool one_of(struct slice word, const char *const *list)
{
    for (; *list; list++)
        if (slice_is(word, *list))
            return true;
    return false;
}

static int nginx_line(struct slice line)
{
    static const char *const words[] = {"server",
                                        "location",
                                        "http",
                                        "events",
                                        "upstream",
                                        "proxy_pass",
                                        "listen",
                                        "include",
                                        "user",
                                        "worker_processes",
                                        "proxy_set_header",
                                        "proxy_next_upstream",
                                        "fastcgi_param",
                                        "uwsgi_param",
                                        "scgi_param",
                                        "proxy_read_timeout",
                                        "types",
                                        "map",
                                        "charset_map",
                                        "proxy_next_upstream_tries",
                                        "grpc_pass",
                                        "fastcgi_pass",
                                        "load_module",
                                        "root",
                                        "error_page",
                                        "return",
                                        "set",
                                        "fastcgi_split_path_info",
                                        "ssl_certificate",
                                        "stream",
                                        "allow",
                                        "gzip",
                                        "add_header",
                                        "proxy_connect_timeout",
                                        "fastcgi_index",
                                        NULL};
    char last = line.data[line.len - 1];
    return (last == ';' || last == '{' || last == '}') && one_of(first_word(line), words) ? 3 : 0;
}

static int haproxy_line(struct slice raw)
{
    static const char *const sections[] = {"global", "defaults", "frontend", "backend", "listen", "resolvers",
                                           "peers",  "userlist", "program",  "cache",   NULL};
    struct slice word = first_word(raw);
    bool alone = raw.len == word.len || raw.data[word.len] == ' ' || raw.data[word.len] == '\t';
    char last = raw.data[raw.len - 1];
    return alone && last != ';' && last != '{' && last != ':' && one_of(word, sections) ? 6 : 0;
}

static int samekey_line(struct slice line)
{
    static const char *const words[] = {
        "upstream", "key_life",    "attempt_timeout", "key_missing",       "call_id",
        "receipt",  "listen",      "store",           "retries",           "rounds",
        "tenant",   "result_life", "admin",           "callee_idempotent", "key",
        NULL};
    struct slice word = first_word(line);
    struct slice rest = slice_trim(slice_of(line.data + word.len, line.len - word.len));
    if (slice_is(word, "route"))
        return starts(rest, "\"") ? 10 : 0;
    char last = line.data[line.len - 1];
    return starts(rest, "=") && last != ';' && one_of(word, words) ? 3 : 0;
}

static int shell_line(struct slice line)
{
    static const char *const words[] = {"curl", "wget", "if",      "fi",    "done",   "esac", "export",
                                        "set",  "echo", "while",   "until", "for",    "then", "else",
                                        "do",   "exit", "timeout", "local", "source", ".",    NULL};
    struct slice word = first_word(line);
    if (slice_is(word, "curl") || slice_is(word, "wget") || contains(line, "$(curl ") ||
        contains(line, " curl -"))
        return 4;
    return one_of(word, words) && line.data[line.len - 1] != '{' && line.data[line.len - 1] != ':' ? 1 : 0;
}

static int celery_line(struct slice line)
{
    static const char *const words[] = {"import", "from", "def", "class", "@app.task", "@shared_task", NULL};
    if (starts(line, "task_") || starts(line, "CELERY_") || starts(line, "app.conf") ||
        starts(line, "broker_") || starts(line, "@app.task") || starts(line, "@shared_task") ||
        starts(line, "@celery") || (starts(line, "from celery") || starts(line, "import celery")))
        return 5;
    return one_of(first_word(line), words) ? 1 : 0;
}

static int properties_line(struct slice line)
{
    return (starts(line, "spring.") || starts(line, "resilience4j.") || starts(line, "ribbon.") ||
            starts(line, "feign.") || contains(first_word(line), "idempoten")) &&
                   memchr(line.data, '=', line.len)
               ? 5
               : 0;
}

static int rabbitmq_line(struct slice line)
{
    static const char *const words[] = {"consumer_timeout",
                                        "loopback_users",
                                        "default_user",
                                        "default_pass",
                                        "heartbeat",
                                        "channel_max",
                                        "disk_free_limit.absolute",
                                        "vm_memory_high_watermark.relative",
                                        "cluster_name",
                                        "NODENAME",
                                        "NODE_IP_ADDRESS",
                                        "NODE_PORT",
                                        "management.tcp.port",
                                        NULL};
    return starts(line, "listeners.") || starts(line, "RABBITMQ_") || starts(line, "cluster_formation.") ||
                   starts(line, "default_policies.") || starts(line, "log.") ||
                   one_of(first_word(line), words)
               ? 4
               : 0;
}

static int yaml_line(struct slice raw)
{
    size_t n = 0;
    if (slice_is(raw, "---"))
        return 3;
    while (n < raw.len && (isalnum((unsigned char)raw.data[n]) || strchr("_-.@\"/", raw.data[n])))
        n++;
    return n && n < raw.len && raw.data[n] == ':' && (n + 1 == raw.len || raw.data[n + 1] == ' ') ? 2 : 0;
}

/* A file of comments alone says in them whose it is. */
static int comment_line(struct slice line, int *rabbitmq)
{
    if (contains(line, "rabbitmq") || contains(line, "RabbitMQ"))
        (*rabbitmq)++;
    return 0;
}

enum review_format reader_guess(const struct source *s)
{
    int score[FORMAT_COUNT] = {0}, yaml = 0, rabbitmq_comments = 0, code = 0;
    struct slice first = source_line(s, 1);
    if (starts(first, "#!"))
        return contains(first, "sh") ? FORMAT_SHELL : contains(first, "python") ? FORMAT_CELERY : FORMAT_AUTO;
    size_t begin = 0;
    while (begin < s->len && strchr(" \t\r\n", s->text[begin]))
        begin++;
    if (begin < s->len && (s->text[begin] == '{' || s->text[begin] == '['))
        return FORMAT_COUNT;
    for (unsigned i = 1; i <= s->lines && i <= GUESS_LINES_MAX; i++) {
        struct slice raw = source_line(s, i), line = slice_trim(raw);
        const char *hash = line.len ? memmem(line.data, line.len, " #", 2) : NULL;
        if (hash)
            line = slice_trim(slice_of(line.data, (size_t)(hash - line.data)));
        if (!line.len)
            continue;
        if (line.data[0] == '#' || line.data[0] == '!') {
            comment_line(line, &rabbitmq_comments);
            continue;
        }
        code++;
        score[FORMAT_NGINX] += nginx_line(line);
        score[FORMAT_HAPROXY] += haproxy_line(raw);
        score[FORMAT_SAMEKEY] += samekey_line(line);
        score[FORMAT_SHELL] += shell_line(line);
        score[FORMAT_CELERY] += celery_line(line);
        score[FORMAT_PROPERTIES] += properties_line(line);
        score[FORMAT_RABBITMQ] += rabbitmq_line(line);
        yaml += yaml_line(raw);
    }
    if (!code && rabbitmq_comments)
        return FORMAT_RABBITMQ;
    int best = FORMAT_AUTO;
    for (int i = 1; i < FORMAT_COUNT; i++)
        if (score[i] > score[best])
            best = i;
    return yaml > score[best] ? FORMAT_COUNT : (enum review_format)best;
}

bool reader_reads_only(struct slice name)
{
    static const char *const verbs[] = {"get",    "list",     "read",    "search",   "find",    "query",
                                        "lookup", "fetch",    "count",   "describe", "check",   "watch",
                                        "view",   "show",     "health",  "status",   "catalog", "catalogue",
                                        "browse", "download", "preview", NULL};
    for (const char *const *v = verbs; *v; v++) {
        size_t n = strlen(*v);
        if (name.len < n || !slice_is_nocase(slice_of(name.data, n), *v))
            continue;
        char next = name.len > n ? name.data[n] : '\0';
        /* "getOrder", "get_order", "get-order" and "get", but not "getaway" or "listen". */
        if (!next || !isalpha((unsigned char)next) || isupper((unsigned char)next))
            return true;
    }
    return false;
}

/* ---- trees ---- */

static bool kubernetes_kind(struct tree *root)
{
    struct slice kind = tree_text(tree_get(root, "kind"));
    return tree_get(root, "apiVersion") && (slice_is(kind, "VirtualService") || slice_is(kind, "Ingress") ||
                                            slice_is(kind, "ConfigMap") || slice_is(kind, "List"));
}

static void find_envoy(void *context, struct tree *mapping, struct tree *parent)
{
    bool *found = context;
    (void)parent;
    for (struct tree *m = mapping->first; m; m = m->next)
        *found = *found || tree_same_name(m->key, "retry_policy") || tree_same_name(m->key, "hedge_policy") ||
                 tree_same_name(m->key, "virtual_hosts") || tree_same_name(m->key, "http_filters") ||
                 tree_same_name(m->key, "lb_policy") ||
                 (strcmp(m->key, "@type") == 0 && contains(tree_text(m), "envoy."));
}

static enum review_format tree_format(struct tree *root)
{
    static const char *const spring[] = {"resilience4j", "spring",     "feign",    "ribbon",
                                         "idempotency",  "idempotent", "openfeign"};
    struct tree *list = tree_resolve(root);
    if (list && list->kind == TREE_LIST && list->first)
        list = tree_resolve(list->first);
    if (kubernetes_kind(root))
        return slice_is(tree_text(tree_get(root, "kind")), "VirtualService") ? FORMAT_ISTIO : FORMAT_INGRESS;
    if (tree_get(root, "apiVersion") && tree_get(root, "kind"))
        return FORMAT_AUTO;
    if (tree_get(root, "methodConfig") || tree_get(root, "retryThrottling") ||
        tree_get(list, "serviceConfig"))
        return FORMAT_GRPC;
    if (tree_get(root, "tools") || tree_path(root, "result.tools") || tree_get(list, "inputSchema"))
        return FORMAT_MCP;
    if (tree_get(root, "rabbit_version") || tree_get(root, "rabbitmq_version") ||
        (tree_get(root, "queues") && (tree_get(root, "exchanges") || tree_get(root, "policies") ||
                                      tree_get(root, "bindings") || tree_get(root, "vhosts"))))
        return FORMAT_RABBITMQ;
    for (struct tree *m = tree_children(root); m; m = m->next)
        for (size_t i = 0; m->key && i < sizeof spring / sizeof *spring; i++)
            if (starts(slice_text(m->key), spring[i]))
                return FORMAT_SPRING;
    bool envoy = tree_get(root, "static_resources") || tree_get(root, "dynamic_resources");
    if (!envoy && !tree_walk(root, find_envoy, &envoy))
        return FORMAT_AUTO;
    return envoy ? FORMAT_ENVOY : FORMAT_AUTO;
}

static bool read_document(struct review *r, struct source *s, struct tree *root, enum review_format format)
{
    switch (format) {
    case FORMAT_ENVOY:
        envoy_read(r, s, root);
        return true;
    case FORMAT_ISTIO:
    case FORMAT_INGRESS:
        kubernetes_read(r, s, root);
        return true;
    case FORMAT_GRPC:
        grpc_read(r, s, root);
        return true;
    case FORMAT_SPRING:
        spring_read(r, s, root);
        return true;
    case FORMAT_RABBITMQ:
        rabbitmq_definitions_read(r, s, root);
        return true;
    case FORMAT_MCP:
        mcp_read(r, s, root);
        return true;
    default:
        return false;
    }
}

static bool read_tree(struct review *r, struct source *s, enum review_format format)
{
    struct tree_documents docs;
    if (!tree_read(&docs, r, s))
        return false;
    bool known = false;
    for (struct tree *root = docs.first; root; root = root->next) {
        enum review_format f = format == FORMAT_AUTO ? tree_format(root) : format;
        if (read_document(r, s, root, f)) {
            known = true;
            s->format = (int)f;
        }
    }
    if (!known && format != FORMAT_AUTO && !docs.first)
        return true; /* empty, and the user says what it is */
    if (!known)
        review_problem(r, s->path, 0, "YAML or JSON of no kind that is known here (see --as)");
    return known;
}

static bool tree_kind_of(enum review_format f)
{
    return f == FORMAT_ENVOY || f == FORMAT_ISTIO || f == FORMAT_INGRESS || f == FORMAT_GRPC ||
           f == FORMAT_SPRING || f == FORMAT_MCP;
}

enum status reader_read(struct review *r, struct source *s, enum review_format format)
{
    bool ok;
    enum review_format f = format == FORMAT_AUTO ? reader_guess(s) : format;
    s->format = (int)f;
    if (f == FORMAT_RABBITMQ && reader_guess(s) == FORMAT_COUNT)
        return read_tree(r, s, FORMAT_RABBITMQ) ? STATUS_OK : STATUS_INVALID;
    if (f == FORMAT_COUNT)
        return read_tree(r, s, FORMAT_AUTO) ? STATUS_OK : STATUS_INVALID;
    if (tree_kind_of(f))
        return read_tree(r, s, f) ? STATUS_OK : STATUS_INVALID;
    switch (f) {
    case FORMAT_SAMEKEY:
        return STATUS_OK; /* the gateway's own settings code reads it and calls review_own_policy() */
    case FORMAT_NGINX:
        ok = nginx_read(r, s);
        break;
    case FORMAT_HAPROXY:
        ok = haproxy_read(r, s);
        break;
    case FORMAT_SHELL:
        ok = shell_read(r, s);
        break;
    case FORMAT_CELERY:
        ok = celery_read(r, s);
        break;
    case FORMAT_RABBITMQ:
        ok = rabbitmq_read(r, s);
        break;
    case FORMAT_PROPERTIES:
        ok = properties_read(r, s);
        break;
    default:
        review_problem(r, s->path, 0, "not a kind of file that is known here (see --as)");
        return STATUS_INVALID;
    }
    return ok ? STATUS_OK : STATUS_INVALID;
}
