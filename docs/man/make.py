#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the manual pages from what the program says of itself: docs/man/make.py BINARY FOLDER.

The options and exit codes are those of `samekey help COMMAND`, the settings those of the settings table, so a page
cannot say anything else than the program does. The pages of `call` and `calls` are docs/make-caller.py's.
"""
import re
import subprocess
import sys

BIN, D = sys.argv[1], sys.argv[2].rstrip("/") + "/"
HEAD='.\\" SPDX-License-Identifier: MIT\n.TH %s %s "" "samekey" "%s"\n'
def esc(s):
    s=s.replace('\\','\\e').replace('-','\\-')
    return re.sub(r"^([.'])", r"\\&\1", s, flags=re.M)
pages={
 'gateway':('stand in front of a service and run every call once','''Every guarded write (POST and PATCH unless the route says otherwise) is claimed in the store before it is sent, so that
the same callId gets the same ending and the same key gets one effect, however often it is repeated. What is not guarded
passes through.
.PP
SIGTERM stops accepting, finishes what runs within \\fBdrain\\fR, and leaves. SIGHUP reads the configuration again; a bad
one is refused whole and the old one kept.'''),
 'receipt':('tell what became of a call','''Reads the receipt of a call. An answer is believed only when it is complete JSON with a known state and the asked
callId; anything else says nothing about the call.
.PP
With \\fB\\-\\-store\\fR, \\fB\\-\\-archive\\fR or \\fB\\-\\-conf\\fR no gateway is asked: the store is read beside its gateway, and an answer that
is past its \\fBresult_life\\fR comes from the archive. Nothing is changed.'''),
 'fence':('give a call up, so that it can never run','''A call that was never received, or is stored and not yet sent, is given up: if its request still arrives, it is refused.
A call that may be running is left as it is. Exit 0 means: it has not run and never will.'''),
 'cancel':('give a call up, or undo it where that is possible','''Works as samekey\\-fence(1). A call that took effect is undone where its route has a reversal.'''),
 'compensations':('list, show and settle calls whose ending is not clear','''A call that ended UNKNOWN is followed up in rounds by its gateway. What the rounds cannot settle is MANUAL: a person looks
at the callee's own records and says how it ended. That is final, and it is kept with who said so, when and on what evidence.
.PP
Many tasks, after an outage, are settled in two steps: the first names them and changes nothing, the second settles exactly
these and refuses if the filter names others meanwhile.'''),
 'id':('make callIds','''A callId names one intention to run an operation. It is made once and sent with every retry. Two are never the same,
whatever the rate, threads and processes of a node; give containers different node names.'''),
 'simulate':('show what a policy does before production does it','''Each experiment runs in virtual time on one core and gives the same for the same flags and \\fB\\-\\-seed\\fR. world sets callers,
gateway, network, callee and disk against each other and looks for what must never be.'''),
 'check':('review policies and configuration files','''Reads the files people already have, of the kinds that \\fB\\-\\-as\\fR names, and asks them the questions to ask before
going live. With \\fB\\-\\-path\\fR the files are the layers of one call path, and what they do together is judged too.'''),
 'diagnose':('find the cause of a duplicate in the logs of any system','''Reads logs in any format and order and answers in four steps: did the callId change, did the key work, do receipts and
effects agree, was each repeat lawful. Each finding names its lines, the layer that did it, what is certain and what is
likely, and a remedy.
.PP
Times without a zone are placed by \\fB\\-\\-tz\\fR only. Offsets between clocks are estimated from messages that must be in
order. Lines that cannot be read are counted and named and are never fatal.'''),
 'reconcile':('hold receipts against business rows','''Compares receipts, business rows and optionally a provider's export, key by key. Changes nothing: corrections go into a plan,
and a second run applies the plan at the gateway.'''),
 'schema':("print the guard's SQL",'''Prints the tables and functions that keep receipts inside a service's own transaction: begin, finish, receipt, fence. A
gateway reads them with \\fBreceipt = "sql ..."\\fR in samekey.conf(5). Installing them again changes nothing and loses
nothing; a newer version in the database is left alone.'''),
}
see={'compensations':'samekey(1), samekey\\-gateway(1), samekey\\-receipt(1)','diagnose':'samekey(1), samekey\\-reconcile(1), samekey\\-receipt(1)','reconcile':'samekey(1), samekey\\-diagnose(1), samekey\\-receipt(1)'}
for cmd,(line,text) in pages.items():
    usage=subprocess.run([BIN,'help',cmd],capture_output=True,text=True,check=True).stdout
    syn=[l.replace('usage: ','',1).strip() for l in usage.split('\n\n')[0].split('\n')]
    rest=usage.split('\n\n',1)[1]
    o=HEAD%('SAMEKEY\\-'+cmd.upper(),1,'User commands')
    o+='.SH NAME\nsamekey\\-%s \\- %s\n.SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n%s\n.SH OPTIONS AND EXIT STATUS\n.nf\n%s\n.fi\n'%(cmd,line,esc('\n'.join(syn)),text,esc(rest.rstrip()))
    o+='.SH SEE ALSO\n%s\n'%see.get(cmd,'samekey(1), samekey.conf(5)')
    open(D+'samekey-%s.1'%cmd,'w').write(o)
h=subprocess.run([BIN,'help'],capture_output=True,text=True,check=True).stdout
o=HEAD%('SAMEKEY',1,'User commands')+'''.SH NAME
samekey \\- make remote calls safe to retry
.SH SYNOPSIS
.nf
samekey COMMAND [...]
samekey help COMMAND
samekey \\-\\-version
.fi
.SH DESCRIPTION
A call runs once, and has a receipt. Results go to standard output, talk to standard error.
.SH COMMANDS
.nf
'''+esc(h.split('\n\n',2)[2].rstrip())+'''
.fi
.SH EXIT STATUS
64 is a usage error with every command, 74 a result that could not be written. The other codes are told by each command.
.SH SEE ALSO
'''+', '.join('samekey\\-%s(1)'%c for c in re.findall(r'^  (\w+)',h,re.M))+''', samekey.conf(5)
'''
open(D+'samekey.1','w').write(o)
doc=subprocess.run([BIN,'gateway','--print-settings-doc'],capture_output=True,text=True,check=True).stdout
o=HEAD%('SAMEKEY.CONF',5,'File formats')+'''.SH NAME
samekey.conf \\- configuration of the samekey gateway
.SH DESCRIPTION
Settings at the top of the file hold for the gateway; each \\fBroute "NAME" { }\\fR holds the settings of one route. The name of
a route is the scope of its keys: renaming it is a new scope. Lists stand in braces, texts with more than letters, digits and
a few signs in double quotes, comments behind #.
.PP
Durations are whole numbers with ms, s, m, h or d; sizes are bytes, or have k, m or g behind them. One mistake anywhere and
nothing starts; all mistakes are told at once.
'''
for sec in doc.split('\n## ')[1:]:
    title,body=sec.split('\n',1)
    o+='.SH %s\n'%title.upper()
    for row in re.findall(r'^\| `(\w+)` \| (.*)$',body,re.M):
        cells=[c.strip() for c in re.split(r'(?<!\\)\|',row[1])]
        cells=[c.replace('\\|','|').replace('`','') for c in cells]
        typ,bounds,default,change,sentence=cells[:5]
        o+='.TP\n.B %s\n%s\n(%s; %s; default %s; %s)\n'%(esc(row[0]),esc(sentence),esc(typ),esc(bounds),esc(default),change)
o+='.SH SEE ALSO\nsamekey\\-gateway(1)\n'
open(D+'samekey.conf.5','w').write(o)
