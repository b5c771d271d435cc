// Everything works without this script. It shows times in the viewer's zone, and keeps the moving parts of a page fresh.
"use strict";
(() => {
	const two = (n) => String(n).padStart(2, "0");
	const local = (d) => d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " +
		two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds());

	function times(root) {
		for (const t of root.querySelectorAll("time[datetime]")) {
			const d = new Date(t.dateTime);
			if (!isNaN(d)) t.textContent = local(d);
		}
	}
	const served = new Map(); // the pieces of moving parts, as the server sent them
	for (const p of document.querySelectorAll("[data-piece]")) served.set(p.dataset.piece, p.innerHTML);
	times(document);
	for (const p of document.querySelectorAll("[data-zone]")) {
		p.textContent = p.dataset.zone.replace("%s", Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" + -new Date().getTimezoneOffset() / 60);
	}

	// A box that checks all boxes of its form.
	for (const box of document.querySelectorAll("input[data-checks]")) {
		box.closest("[hidden]")?.removeAttribute("hidden");
		box.addEventListener("change", () => {
			for (const other of box.form.querySelectorAll("input[name='" + box.dataset.checks + "']")) other.checked = box.checked;
			box.form.dispatchEvent(new Event("change"));
		});
	}
	// Buttons that need a checked box, and the number of checked boxes.
	for (const button of document.querySelectorAll("button[data-needs]")) {
		const form = button.form, label = button.textContent;
		const count = () => {
			const n = form.querySelectorAll("input[name='" + button.dataset.needs + "']:checked").length;
			button.textContent = n ? label + " (" + n + ")" : label;
			button.disabled = n === 0;
		};
		form.addEventListener("change", count);
		addEventListener("pageshow", count);
		count();
	}

	// Moving parts: asked for again each data-live seconds, with an ETag, later and later while nothing changes or the server is away.
	for (const part of document.querySelectorAll("[data-live]")) {
		const least = Math.max(1, Number(part.dataset.live) || 5) * 1000;
		let wait = least, tag = "", timer = 0, asking = false;
		const stale = (is) => document.querySelectorAll("[data-stale]").forEach((p) => { p.hidden = !is; });

		const fieldsOf = (root) => [...root.querySelectorAll("input:not([type=hidden]), textarea, select")];
		const typed = (field) => field === document.activeElement || field.value !== field.defaultValue;
		const formsOf = (root) => [...root.querySelectorAll("form")].map((form) => form.getAttribute("action")).join(" ");
		// What a person reads with a selection, or types into a form that is still there, stays.
		const busy = (old, fresh) => {
			const chosen = getSelection();
			return chosen && !chosen.isCollapsed && old.contains(chosen.anchorNode) || fieldsOf(old).some(typed) && formsOf(old) === formsOf(fresh);
		};
		const put = (into, html) => {
			const at = into.contains(document.activeElement) ? document.activeElement : null;
			const key = at && (at.id ? "#" + CSS.escape(at.id) : at.getAttribute("href") ? "a[href='" + CSS.escape(at.getAttribute("href")) + "']" :
				at.name && at.form ? "form[action='" + CSS.escape(at.form.getAttribute("action")) + "'] [name='" + CSS.escape(at.name) + "']" : "");
			const open = [...into.querySelectorAll("details[id][open]")].map((d) => d.id);
			const kept = fieldsOf(into).filter(typed).map((f) => [f.form.getAttribute("action"), f.name, f.value]);
			into.innerHTML = html;
			open.forEach((id) => { const d = document.getElementById(id); if (d) d.open = true; });
			for (const field of fieldsOf(into)) {
				const was = kept.find(([action, name]) => action === field.form.getAttribute("action") && name === field.name);
				if (was) field.value = was[2];
			}
			times(into);
			if (key) into.querySelector(key)?.focus();
		};
		// Reports whether all is on the page now. A piece that is as it was stays untouched.
		const swap = (html) => {
			const fresh = document.createElement("template");
			fresh.innerHTML = html;
			const pieces = [...fresh.content.querySelectorAll("[data-piece]")];
			if (!pieces.length) {
				if (busy(part, fresh.content)) return false;
				put(part, html);
				return true;
			}
			let all = true;
			for (const piece of pieces) {
				const name = piece.dataset.piece, old = part.querySelector("[data-piece='" + name + "']");
				old.toggleAttribute("data-done", piece.hasAttribute("data-done"));
				if (served.get(name) === piece.innerHTML) continue;
				if (busy(old, piece)) { all = false; continue; }
				served.set(name, piece.innerHTML);
				put(old, piece.innerHTML);
			}
			return all;
		};
		const ask = async () => {
			if (asking || document.hidden) return;
			asking = true;
			const limit = new AbortController(), alarm = setTimeout(() => limit.abort(), 30000);
			try {
				const headers = { "Spillway-Live": "1" };
				if (tag) headers["If-None-Match"] = tag;
				const answer = await fetch(location.href, { headers, cache: "no-store", signal: limit.signal, redirect: "error" });
				if (answer.status === 200) {
					const html = await answer.text();
					if (swap(html)) tag = answer.headers.get("ETag") || "";
					wait = least;
					stale(false);
				} else if (answer.status === 304) {
					wait = Math.min(wait * 1.5, 30000);
					stale(false);
				} else {
					wait = Math.min(wait * 2, 60000);
					stale(true);
				}
			} catch {
				wait = Math.min(wait * 2, 60000);
				stale(true);
			} finally {
				clearTimeout(alarm);
				asking = false;
				again();
			}
		};
		const again = () => {
			clearTimeout(timer);
			if (!document.hidden && !part.querySelector("[data-done]")) timer = setTimeout(ask, wait * (0.9 + 0.2 * Math.random()));
		};
		document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else { wait = least; clearTimeout(timer); if (!part.querySelector("[data-done]")) ask(); } });
		again();
	}
})();
