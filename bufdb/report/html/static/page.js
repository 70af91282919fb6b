"use strict";
document.getElementById("title").textContent = document.title;
