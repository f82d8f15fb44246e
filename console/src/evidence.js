// SPDX-License-Identifier: MIT
// The gateway writes its evidence as English sentences of a known shape (src/core/outcome.c, compensation.c). In English they are shown as
// they are; in Chinese the known shapes are said again, and a sentence of no known shape is shown as it came.
import { language } from './words.js';

const PHRASES = [
  [/^answered (\d+) with Call-Outcome ([a-z-]+)/, '答复 $1，并带有 Call-Outcome: $2'],
  [/^answered (\d+)/, '答复 $1'],
  [/, but for another callId than the one sent/, '，但答复的是另一个 callId'],
  [/, but success_when does not hold/, '，但不满足 success_when'],
  [/ before the whole request was sent/, '（此时请求尚未完整发出）'],
  [/^the name of the service was not found; nothing was sent/, '找不到服务的主机名；没有发出任何内容'],
  [/^connection refused; nothing was sent/, '连接被拒绝；没有发出任何内容'],
  [/^no connection in time; nothing was sent/, '未能按时建立连接；没有发出任何内容'],
  [/^TLS failed before anything was sent/, 'TLS 在发出任何内容之前失败'],
  [/^the service's certificate is not to be trusted; nothing was sent/, '服务的证书不可信；没有发出任何内容'],
  [/^the service refused the stream before processing it/, '服务在处理之前拒绝了该流'],
  [/^the reply was not complete within ([\d.]+) s after the whole request was sent/, '请求完整发出后，$1 秒内未收到完整答复'],
  [/^no reply within ([\d.]+) s after the whole request was sent/, '请求完整发出后，$1 秒内没有任何答复'],
  [/^no reply within ([\d.]+) s/, '$1 秒内没有任何答复'],
  [/^the reply was not complete within ([\d.]+) s/, '$1 秒内未收到完整答复'],
  [/^the connection was reset/, '连接被重置'],
  [/^the connection was closed/, '连接被关闭'],
  [/^the reply is not well-formed HTTP; it came/, '答复不是合法的 HTTP'],
  [/^given up by us/, '由我方放弃'],
  [/^refused by our own limits; nothing was sent/, '被网关自身的限制拒绝；没有发出任何内容'],
  [/^the process that worked on it stopped before it could write down the ending/, '处理该调用的进程在写下结局之前停止了'],
  [/^the callee's receipt does not tell/, '服务的回执没有给出结论'],
  [/^the callee's receipt says that it took effect/, '服务的回执表明已经生效'],
  [/^the callee's receipt says that it failed for good/, '服务的回执表明已最终失败'],
  [/^the callee still works on it/, '服务仍在处理'],
  [/^the callee does not know it, and it may still arrive there/, '服务不知道该请求，但它仍可能到达'],
  [/^the callee did not fence it/, '服务没有封禁它'],
  [/^fenced at the callee: it can never run/, '已在服务侧封禁：它不会再执行'],
  [/ before anything was sent/, '（没有发出任何内容）'],
  [/ after the whole request was sent/, '（请求已完整发出）'],
  [/ after a part of the body was sent/, '（请求正文只发出一部分）'],
  [/ after the head was sent/, '（只发出了请求头）'],
  [/, within the reply/, '，当时答复正在传输'],
  [/ with no byte of reply/, '，没有收到任何答复字节'],
];

export function evidence(text) {
  if (!text || language !== 'zh') return text;
  return PHRASES.reduce((said, [shape, words]) => said.replace(shape, words), text);
}
