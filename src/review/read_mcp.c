/* SPDX-License-Identifier: MIT
 *
 * MCP tool lists (`tools/list` results or an array of tools): what the annotations tell a client about repeating
 * a call. The defaults of the specification are readOnlyHint false, destructiveHint true, idempotentHint false.
 */
#include "review/reader.h"

#include <ctype.h>

static bool names_write(struct slice name)
{
    static const char *const verbs[] = {"create", "add",     "send",   "pay",    "charge",   "delete",
                                        "remove", "update",  "cancel", "refund", "transfer", "book",
                                        "order",  "place",   "submit", "post",   "write",    "set",
                                        "insert", "publish", "issue",  "grant",  "deploy",   "buy"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        size_t n = strlen(verbs[i]);
        if (name.len < n || !slice_is_nocase(slice_of(name.data, n), verbs[i]))
            continue;
        char next = name.len > n ? name.data[n] : '\0';
        if (!next || !isalpha((unsigned char)next) || isupper((unsigned char)next))
            return true;
    }
    return false;
}

/* An argument whose name names an operation: order_no, idempotency_key, requestId, invoice-number, ref. */
static bool names_operation(const char *argument)
{
    static const char *const ends[] = {"id",        "no",   "number", "key",  "ref",
                                       "reference", "code", "path",   "name", "url"};
    size_t n = strlen(argument);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n < k || !slice_is_nocase(slice_of(argument + n - k, k), ends[i]))
            continue;
        if (n == k || argument[n - k - 1] == '_' || argument[n - k - 1] == '-' ||
            isupper((unsigned char)argument[n - k]))
            return true;
    }
    return false;
}

static bool has_operation(struct tree *tool)
{
    for (struct tree *a = tree_children(tree_path(tool, "inputSchema.properties")); a; a = a->next)
        if (a->key && names_operation(a->key))
            return true;
    return false;
}

static void tool_read(struct review *r, struct source *s, struct tree *tool)
{
    struct tree *name_node = tree_get(tool, "name"), *hints = tree_get(tool, "annotations");
    if (!name_node)
        return;
    struct slice name = name_node->text;
    const char *place = pool_format(&r->pool, "tool %.*s", (int)name.len, name.data);
    struct fact reads = tree_flag(tree_get(hints, "readOnlyHint"), s);
    struct fact destroys = tree_flag(tree_get(hints, "destructiveHint"), s);
    struct fact once = tree_flag(tree_get(hints, "idempotentHint"), s);
    if (!reads.known && !destroys.known && !once.known) {
        review_find(r, RULE_TOOL_HINTS_MISSING, s, name_node->line, place,
                    "no readOnlyHint, destructiveHint or idempotentHint");
        return;
    }
    if (fact_is(reads, 1) && fact_is(destroys, 1))
        review_find(r, RULE_TOOL_HINTS_CONTRADICT, s, destroys.line, place,
                    "readOnlyHint and destructiveHint both");
    else if (fact_is(reads, 1) && names_write(name))
        review_find(r, RULE_TOOL_HINTS_CONTRADICT, s, reads.line, place, "readOnlyHint on a tool named %.*s",
                    (int)name.len, name.data);
    if (!fact_is(reads, 1) && fact_is(once, 1) && !has_operation(tool))
        review_find(r, RULE_TOOL_WITHOUT_KEY, s, once.line, place, "no argument names the operation");
}

void mcp_read(struct review *r, struct source *s, struct tree *root)
{
    struct tree *tools = tree_get(root, "tools"), *list = tree_resolve(root);
    if (!tools)
        tools = tree_path(root, "result.tools");
    if (!tools && list && list->kind == TREE_LIST)
        tools = list;
    for (struct tree *t = tree_children(tools); t; t = t->next)
        tool_read(r, s, tree_resolve(t));
}
