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

		const busy = () => {
			const chosen = getSelection();
			const held = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
			return held || chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
		};
		const swap = (html) => {
			const at = part.contains(document.activeElement) ? document.activeElement : null;
			const key = at && (at.id ? "#" + CSS.escape(at.id) : at.getAttribute("href") ? "a[href='" + CSS.escape(at.getAttribute("href")) + "']" : "");
			const open = [...part.querySelectorAll("details[id][open]")].map((d) => d.id);
			part.innerHTML = html;
			open.forEach((id) => { const d = document.getElementById(id); if (d) d.open = true; });
			times(part);
			if (key) part.querySelector(key)?.focus();
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
					if (busy()) { wait = least; } else {
						tag = answer.headers.get("ETag") || "";
						swap(html);
						wait = least;
					}
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
